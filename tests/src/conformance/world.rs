//! A subject with what a program holds of it.

use std::collections::BTreeMap;

use super::step::Step;
use super::subject::{Setup, Subject};
use crate::reference_allocator::{PoolId, Refused};

/// What a step gave, as far as it can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to see, or nothing was done.
    Done,
    /// Where the block is, or who refused.
    Allocated(Result<u64, Refused>),
    /// Whether the settings were taken.
    Settings(bool),
    /// Whether the pool was entered.
    Entered(bool),
}

/// A subject, its live blocks and its pools by the program's numbers.
#[derive(Debug)]
pub struct World<S> {
    /// Who runs the program.
    pub subject: S,
    live: BTreeMap<u64, u64>,
    pools: BTreeMap<u64, PoolId>,
    entered: Vec<u64>,
    /// Pools that were dropped, for those who look at ids afterwards.
    dropped: Vec<(u64, PoolId)>,
}

impl<S: Subject> World<S> {
    /// A fresh one.
    pub fn start(setup: &Setup) -> Result<Self, String> {
        let subject = S::start(setup)?;
        Ok(Self { subject, live: BTreeMap::new(), pools: BTreeMap::new(), entered: Vec::new(), dropped: Vec::new() })
    }

    /// The live blocks, number and address.
    pub fn live(&self) -> &BTreeMap<u64, u64> {
        &self.live
    }

    /// The program's number of a pool, 0 for the default pools. Programs number theirs from 1.
    pub fn pool_number(&self, id: PoolId) -> Option<u64> {
        let pools = self.pools.iter().map(|(number, id)| (*number, *id)).chain(self.dropped.iter().copied());
        pools.chain([(0, (0, 0))]).find(|(_, known)| *known == id).map(|(number, _)| number)
    }

    /// Runs one step.
    pub fn run(&mut self, step: &Step) -> Outcome {
        let subject = &mut self.subject;
        match step {
            Step::Allocate { id, bytes, stream, thread } => {
                let outcome = subject.allocate(*bytes, *stream, *thread);
                if let Ok(address) = outcome {
                    self.live.insert(*id, address);
                }
                return Outcome::Allocated(outcome);
            }
            Step::Free { id } => {
                if let Some(address) = self.live.remove(id) {
                    subject.free(address);
                }
            }
            Step::RecordStream { id, stream } => {
                if let Some(address) = self.live.get(id) {
                    subject.record_stream(*address, *stream);
                }
            }
            Step::Busy { stream } => subject.set_busy(*stream),
            Step::Idle { stream } => subject.set_idle(*stream),
            Step::CompleteEvents { count } => subject.complete_oldest_events(*count),
            Step::Synchronize => subject.synchronize(),
            Step::EmptyCache => subject.empty_cache(),
            Step::ResetPeak => subject.reset_peak(),
            Step::ResetAccumulated => subject.reset_accumulated(),
            Step::Fraction { fraction } => subject.set_memory_fraction(*fraction),
            Step::OtherUse { bytes } => subject.set_other_use(*bytes),
            Step::Settings { text } => return Outcome::Settings(subject.apply_settings(text).is_ok()),
            Step::CreatePool { pool, use_on_oom, no_split } => {
                if !self.pools.contains_key(pool) {
                    self.pools.insert(*pool, subject.create_pool(*use_on_oom, *no_split));
                }
            }
            Step::EnterPool { pool, thread } => {
                if let Some(id) = self.pools.get(pool) {
                    let entered = subject.enter_pool(*id, *thread);
                    if entered {
                        self.entered.push(*pool);
                    }
                    return Outcome::Entered(entered);
                }
            }
            Step::LeavePool { pool } => {
                if let Some(at) = self.entered.iter().position(|entered| entered == pool) {
                    self.entered.remove(at);
                    subject.leave_pool(self.pools[pool]);
                }
            }
            Step::DeletePool { pool } => {
                if self.entered.is_empty()
                    && let Some(id) = self.pools.remove(pool)
                {
                    self.dropped.push((*pool, id));
                    subject.delete_pool(id);
                }
            }
        }
        Outcome::Done
    }

    /// Leaves every pool, drops every pool, frees every block: the steps for it.
    pub fn closing_steps(&self) -> Vec<Step> {
        let leave = self.entered.iter().rev().map(|pool| Step::LeavePool { pool: *pool });
        let delete = self.pools.keys().map(|pool| Step::DeletePool { pool: *pool });
        let free = self.live.keys().map(|id| Step::Free { id: *id });
        leave.chain(delete).chain(free).chain([Step::EmptyCache]).collect()
    }
}
