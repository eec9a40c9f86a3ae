//! `heirlock demo`: what the locks are for, shown.

mod picture;
mod scene;

use std::sync::Arc;

use heirlock::local::Mutex;
use heirlock::pool::Pool;
use heirlock::{Result, Worker};
use tokio::runtime::{Builder, Runtime};

use self::picture::{Picture, Signs};
use self::scene::{ACTORS, HIGH, Happened, STEP, Scene, Task};
use crate::args::Shown;
use crate::exit::Exit;
use crate::output;

/// Plays the scene in three ways, one after the other, and draws each.
pub(crate) fn demo(what: Shown) -> Exit {
    let text = match what {
        Shown::Inversion => inversion(),
    };
    text.map_or_else(Exit::own, |text| output::text(&text, 0))
}

/// Plays it, and tells what happened.
type Play = fn() -> Result<Vec<Happened>>;

/// The case of the Mars Pathfinder, 1997.
fn inversion() -> Result<String> {
    let [high, others, low] = [HIGH, 1, ACTORS.len() - 1].map(|who| ACTORS[who]);
    let signs = Signs::of_locale(|name| std::env::var(name).ok());
    let mut text = format!(
        "One thread. {} (priority {}) holds a lock that {} ({}) asks for; three others ({}) always have something to do.\n{signs}\n",
        low.0, low.1, high.0, high.1, others.1
    );
    let mut waited = Vec::new();
    let ways: [(&str, Play); 3] = [
        ("A pool that polls by priority, and a lock without inheritance", without_inheritance),
        ("The same pool, and a lock whose holder inherits the priority of who waits for it", with_inheritance),
        ("Plain tokio tasks, and tokio's lock, which know no priorities", on_tokio),
    ];
    for (name, play) in ways {
        let picture = Picture::of(&play()?, signs);
        text.push_str(&format!("\n{name}\n{picture}"));
        waited.push(picture.waited.as_millis());
    }
    let (rest, bound) = (scene::LEFT, STEP.as_millis());
    text.push_str(&format!(
        "\nWith inheritance {} waits as long as {} still needs the lock ({rest} steps of {bound} ms), however much the others have to do: {} ms.\n\
         Without, they come in between: {} ms in the pool, {} ms on tokio.\n",
        high.0, low.0, waited[1], waited[0], waited[2]
    ));
    Ok(text)
}

/// One thread, which drives timers and I/O as well where tasks run on it.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .build()
        .map_err(|cause| heirlock::Error::new(heirlock::Kind::Storage, "cannot start a runtime").because(cause))
}

fn on_tokio() -> Result<Vec<Happened>> {
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    let scene = Scene::new(move || Box::pin(boxed(Arc::clone(&lock).lock_owned())), |_, task: Task| drop(tokio::spawn(task)));
    Ok(runtime()?.block_on(scene.play()))
}

fn without_inheritance() -> Result<Vec<Happened>> {
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    in_pool(move || Box::pin(boxed(Arc::clone(&lock).lock_owned())))
}

fn with_inheritance() -> Result<Vec<Happened>> {
    let lock = Arc::new(Mutex::new(()));
    in_pool(move || Box::pin(boxed(lock.lock_owned().into_future())))
}

fn in_pool(lock: impl Fn() -> scene::Acquire + Send + Sync + 'static) -> Result<Vec<Happened>> {
    let runtime = runtime()?;
    let pool = Pool::builder().threads(1).runtime(runtime.handle().clone()).build()?;
    let handle = pool.handle().clone();
    let spawn = move |who: usize, task| {
        let (name, priority) = ACTORS[who];
        drop(handle.spawn(Worker::new(name).priority(priority), task));
    };
    runtime.block_on(async {
        let happened = Scene::new(lock, spawn).play().await;
        pool.drain().await?;
        Ok(happened)
    })
}

/// Whatever guard it is.
async fn boxed<G: Send + 'static>(acquire: impl Future<Output = G>) -> Box<dyn Send> {
    Box::new(acquire.await)
}
