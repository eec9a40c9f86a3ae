//! Processes that are stopped, killed, run out of disk and lose their file, at random: what they guard with fences stays whole.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod elsewhere;
    pub(crate) mod random;
}

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::elsewhere::{again, assert_passes, can_unshare, fill, inside};
use common::random::{Random, seed};
use heirlock::{Lease, Locks};
use rustix::process::{Pid, Signal, kill_process};

const PROCESSES: usize = 8;
const KEYS: u64 = 5;
const TTL: Duration = Duration::from_secs(1);

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A number in a file that only who shows the largest fence may raise; and every raise, one a line.
struct Guarded(File);

impl Guarded {
    fn open(place: &Path, key: u64) -> Guarded {
        Guarded(File::options().read(true).write(true).create(true).truncate(false).open(place.join(format!("guarded {key}"))).unwrap())
    }

    /// Does something while no other process has the file.
    fn alone<T>(&mut self, act: impl FnOnce(&mut File, u64, u64) -> T) -> T {
        self.0.lock().unwrap();
        let mut text = String::new();
        self.0.seek(SeekFrom::Start(0)).unwrap();
        self.0.read_to_string(&mut text).unwrap();
        let last = text.lines().next_back().map_or((0, 0), parse);
        let done = act(&mut self.0, last.0, last.1);
        self.0.unlock().unwrap();
        done
    }

    /// The number, for who holds with this fence, from now on the largest that is seen; `None` if a larger one was.
    fn advance(&mut self, fence: u64) -> Option<u64> {
        self.alone(|file, seen, number| {
            if fence > seen {
                // One write, so that a kill leaves all of it or nothing.
                file.write_all(format!("{fence} {number}\n").as_bytes()).unwrap();
            }
            (fence >= seen).then_some(number)
        })
    }

    /// Whether it was written: not if a larger fence was seen since.
    fn write(&mut self, fence: u64, number: u64) -> bool {
        self.alone(|file, seen, _| {
            if fence == seen {
                file.write_all(format!("{fence} {number}\n").as_bytes()).unwrap();
            }
            fence == seen
        })
    }
}

fn parse(line: &str) -> (u64, u64) {
    let (fence, number) = line.split_once(' ').unwrap();
    (fence.parse().unwrap(), number.parse().unwrap())
}

/// What each of the processes does until it is killed: it holds one key after the other, reads what that guards, and raises it a little later.
fn work(disk: &Path) {
    let place = PathBuf::from(std::env::var_os("HEIRLOCK_TEST_GUARDED").unwrap());
    let number: u64 = std::env::var("HEIRLOCK_TEST_NUMBER").unwrap().parse().unwrap();
    let mut random = Random::new(seed(), number);
    let url = format!("sqlite:{}", disk.join("leases.db").display());
    loop {
        let Ok(locks) = pollster::block_on(Locks::connect(&url)) else {
            sleep(ms(20));
            continue;
        };
        for _ in 0..random.within(5, 50) {
            let key = random.within(0, KEYS);
            // A full disk, a file that is gone: whatever it is, asked again it may go.
            let asked = locks.lock(format!("key {key}")).ttl(TTL).priority(i32::try_from(random.within(0, 3)).unwrap()).timeout(ms(2_000));
            let Ok(lease) = asked.blocking() else { continue };
            let mut guarded = Guarded::open(&place, key);
            if let Some(before) = guarded.advance(lease.fence()) {
                sleep(ms(random.within(0, 15)));
                // Held or not: the fence decides.
                guarded.write(lease.fence(), before + 1);
            }
            if random.chance(80) {
                let _late = lease.release_blocking();
            } else if random.chance(50) {
                // Forgotten as by a process that hangs: until its ttl is over, or it is killed.
                std::mem::forget::<Lease>(lease);
            }
        }
        pollster::block_on(locks.close());
    }
}

struct Storm {
    random: Random,
    disk: PathBuf,
    place: PathBuf,
    children: Vec<(Child, bool)>,
    filler: Option<PathBuf>,
    born: u64,
    /// How often what was done.
    done: [u32; 5],
}

impl Storm {
    fn spawn(&mut self) -> Child {
        self.born += 1;
        let mut command: Command = again(&[], "random_faults", &self.disk);
        command.env("HEIRLOCK_TEST_GUARDED", &self.place).env("HEIRLOCK_TEST_NUMBER", self.born.to_string());
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    fn signal(child: &Child, signal: Signal) {
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    fn step(&mut self) {
        let at = self.random.index(PROCESSES);
        let (child, stopped) = &mut self.children[at];
        let what = match self.random.within(0, 20) {
            0..8 => {
                Storm::signal(child, if *stopped { Signal::CONT } else { Signal::STOP });
                *stopped = !*stopped;
                usize::from(!*stopped)
            }
            8..13 => {
                child.kill().unwrap();
                child.wait().unwrap();
                let child = self.spawn();
                self.children[at] = (child, false);
                2
            }
            13..17 => {
                match self.filler.take() {
                    Some(filler) => fs::remove_file(filler).unwrap(),
                    None => self.filler = Some(fill(&self.disk)),
                }
                3
            }
            17 => {
                for name in ["leases.db", "leases.db-wal", "leases.db-shm"] {
                    let _there: std::io::Result<()> = fs::remove_file(self.disk.join(name));
                }
                4
            }
            _ => return,
        };
        self.done[what] += 1;
    }

    /// All goes on, then ends.
    fn calm(mut self) -> [u32; 5] {
        if let Some(filler) = self.filler.take() {
            fs::remove_file(filler).unwrap();
        }
        for (child, stopped) in &mut self.children {
            if *stopped {
                Storm::signal(child, Signal::CONT);
            }
            child.kill().unwrap();
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "one ended by itself: {status}");
        }
        self.done
    }
}

/// 8 processes and 5 keys, each of which guards a file that checks fences. `HEIRLOCK_SECONDS` says for how long (60), `HEIRLOCK_SEED` fixes the seed.
#[test]
fn random_faults() {
    let test = "random_faults";
    let Some(disk) = inside() else {
        if can_unshare(test, "--mount") {
            let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mount = format!("mount -t tmpfs -o size=1m tmpfs '{}' && exec \"$0\" \"$@\"", place.path().display());
            assert_passes(again(&["unshare", "--mount", "sh", "-c", &mount], test, place.path()));
        }
        return;
    };
    if std::env::var_os("HEIRLOCK_TEST_NUMBER").is_some() {
        return work(&disk);
    }
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let span = std::env::var("HEIRLOCK_SECONDS").ok().map_or(60, |text| text.parse().unwrap());
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut storm = Storm {
        random: Random::new(seed, 0),
        disk: disk.clone(),
        place: place.path().to_owned(),
        children: Vec::new(),
        filler: None,
        born: 0,
        done: [0; 5],
    };
    for _ in 0..PROCESSES {
        let child = storm.spawn();
        storm.children.push((child, false));
    }
    let until = Instant::now() + Duration::from_secs(span);
    while Instant::now() < until {
        storm.step();
        sleep(ms(storm.random.pick(&[5, 20, 80])));
    }
    let done = storm.calm();
    println!("stopped, continued, killed, disk filled or emptied, file removed: {done:?}");
    assert!(done.iter().all(|times| *times > 0), "{done:?}");

    // No write is lost: each raise was of what the one before had written, and fences never fell.
    let mut raises = 0;
    for key in 0..KEYS {
        let written = fs::read_to_string(place.path().join(format!("guarded {key}"))).unwrap();
        let mut last = (0, 0);
        for line in written.lines().map(parse) {
            // Either who came with a larger fence has read the number, or who has the fence has raised it by one, once.
            let advanced = line.0 > last.0 && line.1 == last.1;
            let one_more = line.0 == last.0 && line.1 == last.1 + 1;
            assert!(advanced || one_more, "key {key}: {line:?} after {last:?}");
            last = line;
        }
        raises += last.1;
    }
    println!("{raises} raises");
    assert!(raises > 10 * span, "{raises} raises: they hardly worked");

    // Everything is free when what the dead held is over.
    let locks = pollster::block_on(Locks::connect(&format!("sqlite:{}", disk.join("leases.db").display()))).unwrap();
    for key in 0..KEYS {
        let lease = locks.lock(format!("key {key}")).ttl(TTL).timeout((TTL + ms(1_000)) * 2).blocking().unwrap();
        let mut guarded = Guarded::open(place.path(), key);
        let number = guarded.advance(lease.fence()).unwrap();
        assert!(guarded.write(lease.fence(), number + 1), "the last fence is the largest");
        lease.release_blocking().unwrap();
    }
}
