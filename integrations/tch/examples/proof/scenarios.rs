//! What is run, with Python watching.

use std::sync::{Arc, Once};

use memtrack::source::{MemorySource, register_source};
use memtrack::track_memory;
use memtrack_examples::digits::{Digits, Split};
use memtrack_tch::TorchSource;
use serde_json::json;
use tch::Device;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::memory::{Imitation, Memory, Torch};
use crate::teller::tell;
use crate::training::{Settings, Trainer, backward, evaluate, forward, load_batch, optimizer_step};
use crate::watch::{Spans, Told, in_scope, tell_record};

const MEBIBYTE: i64 = 1 << 20;
const SETTINGS: Settings = Settings { epochs: 1, batch_size: 128, hidden: 512, learning_rate: 0.002, seed: 0 };

/// Runs a scenario on a GPU, or without one on the CPU with the imitation.
pub(crate) fn run(scenario: &str, ordinal: Option<usize>) -> Result<(), String> {
    set_up(ordinal)?;
    let device = ordinal.map_or(Device::Cpu, Device::Cuda);
    match (scenario, ordinal) {
        ("training", _) => training(device).map_err(|error| error.to_string()),
        (_, Some(_)) => of_memory(scenario, &Torch(device)),
        (_, None) => of_memory(scenario, &Imitation),
    }
}

fn of_memory<M: Memory>(scenario: &str, memory: &M) -> Result<(), String> {
    match scenario {
        "nested" => nested(memory),
        "retry" => retry(memory),
        "oom" => out_of_memory(memory),
        "empty-cache" => empty_cache(memory),
        other => Err(format!("there is no scenario `{other}`")),
    }
}

/// Registers the source and the layer, once in the process.
fn set_up(ordinal: Option<usize>) -> Result<(), String> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| result = register(ordinal));
    result
}

fn register(ordinal: Option<usize>) -> Result<(), String> {
    let source: Arc<dyn MemorySource> = match ordinal {
        Some(ordinal) => Arc::new(Told(TorchSource::new(ordinal).map_err(|error| error.to_string())?)),
        None => Arc::new(Told(Imitation)),
    };
    register_source(source).map_err(|error| error.to_string())?.forever();
    tracing_subscriber::registry().with(Spans).try_init().map_err(|error| error.to_string())
}

/// Runs `work` with memtrack switched off, while Python measures it on its own, by PyTorch's peaks.
fn alone<T>(name: &str, work: impl FnOnce() -> T) -> T {
    memtrack::set_enabled(false);
    tell(&json!({ "event": "alone begins", "scope": name }));
    let result = work();
    tell(&json!({ "event": "alone ends", "scope": name }));
    memtrack::set_enabled(true);
    result
}

/// Three steps of the digits' training with memtrack, after one that Python measures alone.
fn training(device: Device) -> Result<(), Box<dyn std::error::Error>> {
    let Split { training, held_out } = Digits::load()?.split();
    let mut trainer = Trainer::new(&SETTINGS, device)?;
    let batches: Vec<Vec<usize>> = (0..6).map(|step| (step * 128..(step + 1) * 128).collect()).collect();
    // Gradients, moments and cuBLAS's workspace come once.
    memtrack::set_enabled(false);
    for indices in &batches[..2] {
        let loss = forward(&trainer, load_batch(&training, indices, device)?)?;
        backward(&mut trainer, loss)?;
        optimizer_step(&mut trainer);
    }
    evaluate(&trainer, &held_out)?;

    let batch = alone("load_batch", || load_batch(&training, &batches[2], device))?;
    let loss = alone("forward", || forward(&trainer, batch))?;
    alone("backward", || backward(&mut trainer, loss))?;
    alone("optimizer_step", || optimizer_step(&mut trainer));

    tell(&json!({ "event": "open", "scope": "epoch" }));
    let epoch = memtrack::epoch(1);
    for (number, indices) in (1..).zip(&batches[3..]) {
        tell(&json!({ "event": "open", "scope": "step" }));
        let step = memtrack::step(number);
        let batch = load_batch(&training, indices, device)?;
        let loss = forward(&trainer, batch)?;
        backward(&mut trainer, loss)?;
        optimizer_step(&mut trainer);
        tell_record(&step.finish().ok_or("no step was measured")?);
    }
    evaluate(&trainer, &held_out)?;
    let summary = epoch.finish().ok_or("no epoch was measured")?;
    let source = summary.sources.first().ok_or("the summary has no source")?;
    let rows: Vec<_> = source
        .phases
        .iter()
        .map(|row| {
            json!({
                "phase": row.name, "entered_count": row.entered_count, "before_bytes": row.before_bytes,
                "after_bytes": row.after_bytes, "net_bytes": row.net_bytes, "peak_bytes": row.peak_bytes,
                "rise_max_bytes": row.rise_max_bytes,
                "reserved_peak_bytes": row.reserved_peak_bytes,
            })
        })
        .collect();
    let epoch = &source.epoch;
    let figures = json!({
        "before_bytes": epoch.before_bytes, "after_bytes": epoch.after_bytes, "peak_bytes": epoch.peak_bytes,
        "reserved_peak_bytes": epoch.reserved_peak_bytes, "retry_count": epoch.retry_count, "oom_count": epoch.oom_count,
    });
    tell(&json!({
        "event": "summary", "scope": "epoch", "peak_kind": epoch.peak_kind.as_str(), "figures": figures, "phases": rows,
        "text": summary.to_string(),
    }));
    Ok(())
}

/// Holds a little, while [`inner`] takes much and gives it back: the highest moment is in the inner function, and PyTorch's own mark of it
/// is reset where that ends.
#[track_memory(err)]
fn outer<M: Memory>(memory: &M) -> Result<M::Piece, String> {
    let _held = memory.take(8 * MEBIBYTE)?;
    let kept = inner(memory)?;
    let _after = memory.take(12 * MEBIBYTE)?;
    Ok(kept)
}

#[track_memory(err)]
fn inner<M: Memory>(memory: &M) -> Result<M::Piece, String> {
    drop(memory.take(256 * MEBIBYTE)?);
    memory.take(2 * MEBIBYTE)
}

fn nested<M: Memory>(memory: &M) -> Result<(), String> {
    memory.empty_cache()?;
    drop(alone("outer", || outer(memory))?);
    memory.empty_cache()?;
    drop(outer(memory)?);
    Ok(())
}

/// Four pieces that fit no larger request stay cached, and with them there is no room for one.
fn retry<M: Memory>(memory: &M) -> Result<(), String> {
    memory.empty_cache()?;
    tell(&json!({ "event": "limit", "headroom_bytes": 256 * MEBIBYTE }));
    let pieces = (0..4).map(|_| memory.take(40 * MEBIBYTE)).collect::<Result<Vec<_>, _>>()?;
    drop(pieces);
    let large = in_scope("retry", || memory.take(200 * MEBIBYTE))?;
    tell(&json!({ "event": "limit" }));
    large.map(drop)
}

/// More than the limit, whatever is given back.
#[track_memory(err)]
fn too_much<M: Memory>(memory: &M) -> Result<M::Piece, String> {
    memory.take(400 * MEBIBYTE)
}

fn out_of_memory<M: Memory>(memory: &M) -> Result<(), String> {
    memory.empty_cache()?;
    tell(&json!({ "event": "limit", "headroom_bytes": 256 * MEBIBYTE }));
    let refused = in_scope("oom", || too_much(memory).map(drop))?;
    tell(&json!({ "event": "limit" }));
    match refused {
        Err(_) => Ok(()),
        Ok(()) => Err("400 MiB were to be had within a limit of 256".to_owned()),
    }
}

fn empty_cache<M: Memory>(memory: &M) -> Result<(), String> {
    drop(memory.take(64 * MEBIBYTE)?);
    tell(&json!({ "event": "cached", "at_least_bytes": 64 * MEBIBYTE }));
    in_scope("empty cache", || memory.empty_cache())??;
    tell(&json!({ "event": "emptied", "at_least_bytes": 64 * MEBIBYTE }));
    Ok(())
}
