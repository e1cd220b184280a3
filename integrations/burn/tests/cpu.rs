//! Training on the CPU, with the heap counted.
#![cfg(feature = "ndarray")]

use std::sync::Arc;

use burn::backend::ndarray::NdArrayDevice;
use burn::backend::{Autodiff, NdArray};
use memtrack::source::{PeakKind, SourcePhase, SourceSummary, register_source};
use memtrack_burn_digits::heap::{CountedHeap, HeapSource};
use memtrack_burn_digits::training::{Settings, train};

#[global_allocator]
static HEAP: CountedHeap = CountedHeap;

const HIDDEN: i64 = 128;
/// Weights and biases.
const PARAMETER_BYTES: i64 = 4 * (64 * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN * 10 + 10);
/// Of one step, the output of one hidden layer.
const ACTIVATION_BYTES: i64 = 4 * 64 * HIDDEN;

fn phase<'a>(source: &'a SourceSummary, name: &str) -> &'a SourcePhase {
    source.phases.iter().find(|phase| phase.name == name).unwrap_or_else(|| panic!("{name} is missing in {source:?}"))
}

#[test]
fn the_network_learns_and_each_phase_holds_what_training_makes_it_hold() {
    let _registered = register_source(Arc::new(HeapSource)).unwrap();
    let settings = Settings { epochs: 4, batch_size: 64, hidden: HIDDEN as usize, learning_rate: 0.002, seed: 1 };
    let mut output = Vec::new();
    let trained = train::<Autodiff<NdArray>>(settings, &NdArrayDevice::Cpu, &mut output).unwrap();
    let text = String::from_utf8(output).unwrap();
    assert!(trained.accuracy > 0.9, "{text}");
    assert_eq!(trained.summaries.len(), 4);

    let sources = || trained.summaries.iter().map(|summary| &summary.sources[0]);
    for source in sources() {
        let names: Vec<&str> = source.phases.iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["data", "forward", "backward", "optimizer", "evaluate"], "{text}");
        // 1438 images in steps of 64, and all others at once inside the evaluation.
        let entered: Vec<u64> = source.phases.iter().map(|phase| phase.entered_count).collect();
        assert_eq!(entered, [24, 23, 23, 23, 1], "{text}");
        assert_eq!(source.peak_kind(), PeakKind::Exact);
        let net = |name: &str| phase(source, name).net_bytes.unwrap();
        // Two hidden layers' activations at least, for each step but the last, which is smaller.
        assert!(net("forward") > 22 * 2 * ACTIVATION_BYTES, "{text}");
        assert!(phase(source, "backward").rise_max_bytes.unwrap() > ACTIVATION_BYTES, "{text}");
    }
    let net = |source: &SourceSummary, name: &str| phase(source, name).net_bytes.unwrap();
    let optimizer: Vec<i64> = sources().map(|source| net(source, "optimizer")).collect();
    // Adam's moments stay from the first epoch on; in every epoch the gradients go.
    let moments_bytes = optimizer[0] - optimizer[1];
    assert!((2 * PARAMETER_BYTES..2 * PARAMETER_BYTES + 16_384).contains(&moments_bytes), "{moments_bytes}: {text}");
    // The last epoch keeps nothing of a tensor's size.
    let kept_bytes = sources().next_back().unwrap().epoch.delta_bytes().unwrap();
    assert!(kept_bytes.abs() < ACTIVATION_BYTES, "{kept_bytes}: {text}");
}
