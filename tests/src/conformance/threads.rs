//! Threads by number, for steps that depend on which thread makes them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use memtrack::PoolGuard;

use crate::reference_allocator::PoolId;

/// The guards that a thread holds.
pub type Guards = BTreeMap<PoolId, PoolGuard>;

type Job = Box<dyn FnOnce(&mut Guards) + Send>;

/// Thread 0 is the caller's own; others are started when they are first needed, and end with this.
#[derive(Default)]
pub struct Threads {
    own: Guards,
    others: BTreeMap<usize, (Sender<Job>, JoinHandle<()>)>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("others", &self.others.len()).finish_non_exhaustive()
    }
}

impl Threads {
    /// Runs a job on a thread, and waits for it.
    pub fn run<R: Send + 'static>(&mut self, thread: usize, job: impl FnOnce(&mut Guards) -> R + Send + 'static) -> R {
        if thread == 0 {
            return job(&mut self.own);
        }
        let (jobs, _) = self.others.entry(thread).or_insert_with(|| {
            let (jobs, waiting) = channel::<Job>();
            let work = move || {
                let mut guards = Guards::new();
                waiting.iter().for_each(|job| job(&mut guards));
            };
            (jobs, thread::spawn(work))
        });
        let (answer, answered) = channel();
        let job: Job = Box::new(move |guards| drop(answer.send(job(guards))));
        jobs.send(job).unwrap();
        answered.recv().unwrap_or_else(|_| panic!("the job panicked, see above"))
    }

    /// Runs a job on every thread there is.
    pub fn run_on_each(&mut self, job: impl FnOnce(&mut Guards) + Clone + Send + 'static) {
        let others: Vec<usize> = self.others.keys().copied().collect();
        for thread in [0].into_iter().chain(others) {
            self.run(thread, job.clone());
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for (jobs, thread) in std::mem::take(&mut self.others).into_values() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}
