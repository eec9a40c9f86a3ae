//! The tasks of a pool: which are ready, and whose turn is next. Plain data.

use std::cmp::Reverse;

use slab::Slab;

use crate::heap::Heap;
use crate::local::tickets::Newest;

/// Names a task; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskKey {
    pub(super) slot: u32,
    /// Never 0.
    pub(super) number: u64,
}

/// The tasks of a pool. `R` is what is ready to be polled, `T` what is kept of a task.
#[derive(Debug)]
pub(super) struct Queue<R, T> {
    tasks: Slab<Task<R, T>>,
    /// The ready ones, the most urgent first, and among equals the one that has been ready for longest.
    ready: Heap<Turn>,
    /// Where in it they are, by their slots: apart from the tasks, because many places change with each step.
    places: Vec<u32>,
    /// How often a task came or became ready: its place among equals.
    count: u64,
}

/// For how many tasks an empty queue keeps room.
const KEPT: usize = 1024;

type Turn = (Reverse<i32>, u64);

#[derive(Debug)]
struct Task<R, T> {
    number: u64,
    priority: Newest<i32>,
    /// What to poll, if it is ready.
    ready: Option<R>,
    kept: T,
}

impl<R, T> Queue<R, T> {
    pub(super) fn new() -> Queue<R, T> {
        Queue { tasks: Slab::new(), ready: Heap::new(), places: Vec::new(), count: 0 }
    }

    /// How many tasks there are that have not ended.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// How many of them are ready and not being polled.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// A task comes, with this priority until one with a ticket is found out.
    ///
    /// # Panics
    /// With more than four thousand million tasks.
    pub(super) fn insert(&mut self, priority: i32, kept: T) -> TaskKey {
        let number = self.next();
        let slot = self.tasks.insert(Task { number, priority: Newest::first(priority), ready: None, kept });
        let Ok(slot) = u32::try_from(slot) else { panic!("more than four thousand million tasks in one pool") };
        if self.places.len() < self.tasks.len() {
            self.places.push(0);
        }
        TaskKey { slot, number }
    }

    /// The task is to be polled. It queues behind its equals.
    pub(super) fn push(&mut self, key: TaskKey, poll: R) {
        let since = self.next();
        let Queue { tasks, ready, places, .. } = self;
        let Some(task) = task(tasks, key) else { return };
        task.ready = Some(poll);
        ready.insert((Reverse(task.priority.get()), since), key.slot, |slot, place| places[slot as usize] = place);
    }

    /// Whose turn it is. It is ready no more.
    pub(super) fn pop(&mut self) -> Option<(TaskKey, R)> {
        let Queue { tasks, ready, places, .. } = self;
        let (_, slot) = ready.first()?;
        ready.remove(0, |slot, place| places[slot as usize] = place);
        let task = tasks.get_mut(slot as usize)?;
        let poll = task.ready.take()?;
        Some((TaskKey { slot, number: task.number }, poll))
    }

    /// The task's priority, as found out with this ticket. A ready task keeps its place among those who are now its equals.
    pub(super) fn rekey(&mut self, key: TaskKey, priority: i32, ticket: u64) {
        let Queue { tasks, ready, places, .. } = self;
        let Some(task) = task(tasks, key) else { return };
        let before = task.priority.get();
        if !task.priority.offer(ticket, priority) || before == priority {
            return;
        }
        if task.ready.is_some() {
            let place = places[key.slot as usize];
            let (_, since) = ready.key(place);
            ready.rekey(place, (Reverse(priority), since), |slot, place| places[slot as usize] = place);
        }
    }

    /// The task has ended. What was kept of it.
    pub(super) fn remove(&mut self, key: TaskKey) -> Option<T> {
        task(&mut self.tasks, key)?;
        let kept = self.tasks.remove(key.slot as usize).kept;
        if self.tasks.is_empty() && self.tasks.capacity() > KEPT {
            (self.tasks, self.places) = (Slab::new(), Vec::new());
        }
        Some(kept)
    }

    /// What is kept of a task that has not ended.
    pub(super) fn kept(&self, key: TaskKey) -> Option<&T> {
        self.tasks.get(key.slot as usize).filter(|task| task.number == key.number).map(|task| &task.kept)
    }

    /// The same of all.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.tasks.iter().map(|(_, task)| &task.kept)
    }

    /// At which priority it is polled.
    #[cfg(test)]
    pub(super) fn priority(&self, key: TaskKey) -> Option<i32> {
        self.tasks.get(key.slot as usize).filter(|task| task.number == key.number).map(|task| task.priority.get())
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

fn task<R, T>(tasks: &mut Slab<Task<R, T>>, key: TaskKey) -> Option<&mut Task<R, T>> {
    tasks.get_mut(key.slot as usize).filter(|task| task.number == key.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(i32),
        Push(usize),
        Pop,
        Rekey(usize, i32, u64),
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let priority = prop_oneof![4 => -2..=2_i32, 1 => Just(i32::MIN), 1 => Just(i32::MAX)];
        prop_oneof![
            2 => priority.clone().prop_map(Step::Insert),
            4 => (0..24_usize).prop_map(Step::Push),
            3 => Just(Step::Pop),
            3 => (0..24_usize, priority, 0..40_u64).prop_map(|(task, priority, ticket)| Step::Rekey(task, priority, ticket)),
            1 => (0..24_usize).prop_map(Step::Remove),
        ]
    }

    /// A task as a naive queue would keep it.
    struct Plain {
        key: TaskKey,
        priority: i32,
        ticket: u64,
        ready: Option<usize>,
        gone: bool,
    }

    /// What so many tasks took is given back when the last of them ends, and old keys name nobody of those who come then.
    #[test]
    fn an_empty_queue_keeps_little_room() {
        let mut queue = Queue::new();
        let keys: Vec<TaskKey> = (0..10 * KEPT).map(|at| queue.insert(0, at)).collect();
        for key in &keys {
            queue.push(*key, ());
        }
        while let Some((key, ())) = queue.pop() {
            assert!(queue.remove(key).is_some());
        }
        assert!(queue.tasks.capacity() <= KEPT && queue.places.capacity() <= KEPT && queue.ready.is_empty());
        let next = queue.insert(0, 7);
        queue.push(keys[0], ());
        queue.rekey(keys[0], 9, 1);
        assert_eq!((queue.remove(keys[0]), queue.priority(next), queue.ready()), (None, Some(0), 0));
        assert_eq!(queue.remove(next), Some(7));
    }

    proptest! {
        /// Beside a list in which whose turn it is is looked for anew each time.
        #[test]
        fn turns_are_those_of_a_plain_list(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut queue, mut plain) = (Queue::new(), Vec::<Plain>::new());
            for (now, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(priority) => {
                        let key = queue.insert(priority, plain.len());
                        plain.push(Plain { key, priority, ticket: 0, ready: None, gone: false });
                    }
                    Step::Push(at) => {
                        if let Some(task) = plain.get_mut(at).filter(|task| task.ready.is_none()) {
                            queue.push(task.key, at);
                            task.ready = (!task.gone).then_some(now);
                        }
                    }
                    Step::Pop => {
                        let first = (0..plain.len()).filter(|at| plain[*at].ready.is_some());
                        let first = first.min_by_key(|at| (Reverse(plain[*at].priority), plain[*at].ready));
                        prop_assert_eq!(queue.pop(), first.map(|at| (plain[at].key, at)));
                        if let Some(at) = first {
                            plain[at].ready = None;
                        }
                    }
                    Step::Rekey(at, priority, ticket) => {
                        let Some(task) = plain.get_mut(at) else { continue };
                        queue.rekey(task.key, priority, ticket);
                        if !task.gone && task.ticket < ticket {
                            (task.priority, task.ticket) = (priority, ticket);
                        }
                    }
                    // Only what has been polled can end.
                    Step::Remove(at) => {
                        if let Some(task) = plain.get_mut(at).filter(|task| task.ready.is_none()) {
                            prop_assert_eq!(queue.remove(task.key), (!task.gone).then_some(at));
                            task.gone = true;
                        }
                    }
                }
                let live = plain.iter().filter(|task| !task.gone);
                prop_assert_eq!(queue.all().copied().collect::<std::collections::BTreeSet<_>>().len(), live.clone().count());
                prop_assert_eq!((queue.len(), queue.ready()), (live.clone().count(), live.filter(|task| task.ready.is_some()).count()));
                for (at, task) in plain.iter().enumerate() {
                    prop_assert_eq!(queue.kept(task.key), (!task.gone).then_some(&at));
                    prop_assert_eq!(queue.priority(task.key), (!task.gone).then_some(task.priority));
                }
            }
        }
    }
}
