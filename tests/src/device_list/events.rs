//! Events and streams.

use crate::unused::ReleaseUnused as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use memtrack::device::{Device, DeviceError, Stream};

use super::{Check, Checked, Controls, Outcome, ensure, ensure_matches};

const CANNOT_HOLD: Outcome = Outcome::Skipped("a stream cannot be kept busy");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("an event after finished work is ready", an_event_after_finished_work_is_ready),
    ("many events live at once", many_events_live_at_once),
    ("an event on a busy stream is ready when the stream is done", an_event_on_a_busy_stream),
    ("waiting for an event ends when its stream is done", waiting_for_an_event),
    ("a stream waits for another's event", a_stream_waits_for_anothers_event),
    ("an unknown stream is refused by every call", an_unknown_stream_is_refused),
];

fn an_event_after_finished_work_is_ready(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    for stream in [Some(Stream::DEFAULT), controls.second_stream].into_iter().flatten() {
        let event = device.record_event(stream)?;
        device.synchronize_stream(stream)?;
        ensure!(device.query_event(&event)?, "not ready on idle {stream}");
        device.wait_event(&event)?;
        device.release_event(event);
    }
    device.synchronize()?;
    Ok(Outcome::Held)
}

fn many_events_live_at_once(device: &Arc<dyn Device>, _: &Controls) -> Checked {
    for _ in 0..3 {
        let events: Vec<_> = (0..300).map(|_| device.record_event(Stream::DEFAULT)).collect::<Result<_, _>>()?;
        device.synchronize()?;
        for event in events {
            ensure!(device.query_event(&event)?, "{event:?} is not ready on an idle device");
            device.release_event(event);
        }
    }
    Ok(Outcome::Held)
}

fn an_event_on_a_busy_stream(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (Some(hold), Some(stream)) = (&controls.hold, controls.second_stream) else { return Ok(CANNOT_HOLD) };
    let before = device.record_event(stream)?;
    device.wait_event(&before)?;
    let held = hold(stream)?;
    let during = device.record_event(stream)?;
    let elsewhere = device.record_event(Stream::DEFAULT)?;
    device.synchronize_stream(Stream::DEFAULT)?;
    ensure!(device.query_event(&before)?, "the event before the work is not ready");
    ensure!(!device.query_event(&during)?, "the event after the work is ready while the work goes on");
    ensure!(device.query_event(&elsewhere)?, "an event of another stream is not ready");
    drop(held);
    device.synchronize_stream(stream)?;
    ensure!(device.query_event(&during)?, "the event after the work is not ready although the work is done");
    for event in [before, during, elsewhere] {
        device.release_event(event);
    }
    Ok(Outcome::Held)
}

fn waiting_for_an_event(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (Some(hold), Some(stream)) = (&controls.hold, controls.second_stream) else { return Ok(CANNOT_HOLD) };
    let held = hold(stream)?;
    let event = device.record_event(stream)?;
    let (event, is_ready) = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waited = device.wait_event(&event);
            let is_ready = waited.and_then(|()| device.query_event(&event));
            (event, is_ready)
        });
        thread::sleep(Duration::from_millis(20));
        drop(held);
        waiter.join()
    })
    .map_err(|_| "the waiting thread panicked")?;
    ensure!(is_ready?, "not ready after the wait");
    device.release_event(event);
    Ok(Outcome::Held)
}

fn a_stream_waits_for_anothers_event(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let (Some(hold), Some(stream)) = (&controls.hold, controls.second_stream) else { return Ok(CANNOT_HOLD) };
    if !controls.orders_streams {
        return Ok(Outcome::Skipped("streams do no work that could wait"));
    }
    let held = hold(stream)?;
    let first = device.record_event(stream)?;
    device.stream_wait_event(Stream::DEFAULT, &first)?;
    let second = device.record_event(Stream::DEFAULT)?;
    // The wait stays as it was told, whatever becomes of the event.
    device.release_event(first);
    thread::sleep(Duration::from_millis(5));
    ensure!(!device.query_event(&second)?, "the default stream did not wait");
    drop(held);
    device.wait_event(&second)?;
    ensure!(device.query_event(&second)?, "not ready after the wait");
    device.release_event(second);
    Ok(Outcome::Held)
}

fn an_unknown_stream_is_refused(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some(unknown) = controls.unknown_stream else { return Ok(Outcome::Skipped("every number names a stream")) };
    let event = device.record_event(Stream::DEFAULT)?;
    let address = device.allocate(1024)?;
    let mut byte = [0];
    let answers = [
        ("record_event", device.record_event(unknown).map(|event| device.release_event(event))),
        ("stream_wait_event", device.stream_wait_event(unknown, &event)),
        ("synchronize_stream", device.synchronize_stream(unknown)),
        // SAFETY: the ranges lie in the segment above, which nobody else knows.
        ("write", unsafe { device.write(address, &byte, unknown) }),
        // SAFETY: likewise.
        ("read", unsafe { device.read(address, &mut byte, unknown) }),
        // SAFETY: likewise, and they are apart.
        ("copy", unsafe { device.copy(address, address + 512, 512, unknown) }),
        // SAFETY: likewise.
        ("fill", unsafe { device.fill(address, 1, 512, unknown) }),
    ];
    for (call, answer) in answers {
        let is_refused = matches!(&answer, Err(DeviceError::InvalidStream { stream, .. }) if *stream == unknown);
        ensure!(is_refused, "{call}: {answer:?}");
    }
    device.release_event(event);
    device.release_unused(address, 1024)?;
    ensure_matches!(device.synchronize(), Ok(()));
    Ok(Outcome::Held)
}
