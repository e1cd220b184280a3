//! What becomes of an out of memory before the caller gets it: its findings, its event, its post-mortem.

use std::sync::Arc;

use super::error::OutOfMemory;
use super::events;
use super::hooks;
use super::inner::Inner;
use super::survey::Survey;
use super::watch;
use crate::diagnosis::{self, LiveGroup, Request};
use crate::post_mortem::{self, Material, Report};

impl Inner {
    /// Finds out why it failed, and returns what was live by line and scope. No lock may be held.
    pub(super) fn explain(&self, error: &mut OutOfMemory, survey: Survey) -> Vec<LiveGroup> {
        let view = self.finish(survey);
        // This thread made the request, and what it leads where has not changed since.
        let pool = self.routes.any().then(|| self.routes.find(&*self.device, error.stream).ok().flatten()).flatten();
        let private_pool = pool.map(|pool| (pool.id.0, pool.id.1));
        error.findings = diagnosis::examine_failure(&view, &Request { private_pool, ..error.request() });
        view.live
    }

    /// Logs the out of memory that the caller is about to get, and writes what there is to know. No lock may be held. `this` is the
    /// same as `self`: a writer that takes too long is left to itself.
    pub(super) fn report(&self, this: &Arc<Self>, error: &mut OutOfMemory, live: Vec<LiveGroup>) {
        events::log_out_of_memory(error);
        // What fails inside a hook is not reported through what it makes fail.
        if !hooks::is_inside()
            && let Some(order) = post_mortem::order()
        {
            let outcome = post_mortem::write(order, material(this, error, live));
            events::log_post_mortem(self, &outcome);
            error.post_mortem = outcome.ok();
        }
        watch::tell(self, error);
    }
}

fn material(inner: &Arc<Inner>, error: &OutOfMemory, live: Vec<LiveGroup>) -> Material {
    let (for_snapshot, for_driver) = (Arc::clone(inner), Arc::clone(inner));
    let (allocated_bytes, reserved_bytes) = (error.allocated_bytes, error.reserved_bytes);
    Material {
        report: Report {
            message: error.to_string(),
            device: error.device.clone(),
            phase: error.phase,
            requested_bytes: error.requested_bytes,
            allocated_bytes,
            reserved_bytes,
            device_free_bytes: error.device_free_bytes,
            findings: error.findings.clone(),
            live,
        },
        snapshot: Box::new(move || for_snapshot.snapshot(true, None)),
        driver: Box::new(move || match for_driver.driver_report(allocated_bytes, reserved_bytes) {
            Some(report) => report.to_string(),
            None => "driver    no figures: call attach_driver(), or open an epoch, to have them".to_owned(),
        }),
    }
}
