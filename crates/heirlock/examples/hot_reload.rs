//! Load the configuration once, and reload it while it is in use.
//!
//! Whoever needs the settings first reads the file; those who come meanwhile wait for it. A reload reads and checks the file before it locks the
//! settings, so nobody waits for the disk, and a file with a mistake changes nothing. Each request keeps the settings that it began with.
//!
//! You do not need this for settings that never change (`OnceCell` alone). Where tasks must be told of a change, use `tokio::sync::watch`. A large
//! file, or one that is far away, is for `spawn_blocking` or `tokio::fs`.

use heirlock::local::{Mutex, OnceCell, RwLock};
use heirlock::{Error, Kind, Result};
use std::{path::PathBuf, sync::Arc};

#[derive(Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) workers: u32,
}

pub(crate) struct Config {
    path: PathBuf,
    current: OnceCell<RwLock<Arc<Settings>>>,
    reloading: Mutex<()>,
}

impl Config {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Config {
        Config { path: path.into(), current: OnceCell::named("settings"), reloading: Mutex::named("reload of the settings", ()) }
    }

    /// What counts now; read from the file by the first who asks.
    pub(crate) async fn get(&self) -> Result<Arc<Settings>> {
        Ok(Arc::clone(&*self.current().await?.read().await?))
    }

    /// Reads the file again. If that fails, what counted before does so still.
    pub(crate) async fn reload(&self) -> Result<()> {
        let current = self.current().await?;
        // One at a time: an older file that was slow to read must not replace a newer one.
        let _alone = self.reloading.lock().await?;
        let fresh = Arc::new(self.read()?);
        *current.write().await? = fresh;
        Ok(())
    }

    async fn current(&self) -> Result<&RwLock<Arc<Settings>>> {
        self.current.get_or_try_init(async || Ok(RwLock::named("current settings", Arc::new(self.read()?)))).await
    }

    fn read(&self) -> Result<Settings> {
        let path = self.path.display();
        let unread = |error| Error::new(Kind::Storage, format!("cannot read {path}")).because(error);
        let text = std::fs::read_to_string(&self.path).map_err(unread)?;
        let workers = text.trim().strip_prefix("workers = ").and_then(|number| number.parse().ok());
        let workers = workers.ok_or_else(|| Error::new(Kind::Invalid, format!("{path}: write `workers = 4`, not {:?}", text.trim())))?;
        Ok(Settings { workers })
    }
}

/// What a request sees that began before all of it, then who comes after a good file, and after one with a mistake; and what the last reload said.
pub(crate) async fn recipe() -> Result<([u32; 3], Option<Error>), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("heirlock-hot-reload-{}", std::process::id()));
    std::fs::write(&path, "workers = 4")?;
    let config = Config::new(&path);
    let began_before = config.get().await?;
    std::fs::write(&path, "workers = 8")?;
    config.reload().await?;
    let after = config.get().await?.workers;
    std::fs::write(&path, "workers = many")?;
    let refused = config.reload().await.err();
    std::fs::remove_file(&path)?;
    Ok(([began_before.workers, after, config.get().await?.workers], refused))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ([before, after, still], refused) = recipe().await?;
    println!("a request that began before goes on with {before} workers, the next has {after}");
    println!("then {still} still, for: {}", refused.map_or("no reason".into(), |error| error.to_string()));
    Ok(())
}
