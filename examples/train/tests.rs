//! The mathematics against plain formulas, and whole runs against what the README promises.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Parser as _;
use memtrack::device::{Device as _, DeviceChoice, Host};
use memtrack::history::{ReadLimits, Snapshot};
use memtrack::{AllocationError, Buffer, CachingAllocator};

use crate::compute::{AdamStep, Compute, CpuKernels};
use crate::error::TrainError;
use crate::matrix::Matrix;
use crate::model::{Batch, Model};
use crate::options::Options;
use crate::{backward, forward, setup, train};
use memtrack_examples::digits::Digits;

/// The default allocator belongs to the whole process, so tests that measure take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cpu() -> Compute {
    Compute::new(CachingAllocator::new(Arc::new(Host::new())), Box::new(CpuKernels))
}

fn matrix(compute: &Compute, columns: usize, values: &[f32]) -> Matrix {
    Matrix::from_rows(compute.allocator(), values, columns).unwrap()
}

fn random_matrix(compute: &Compute, rows: usize, columns: usize, random: &mut fastrand::Rng) -> Matrix {
    let values: Vec<f32> = (0..rows * columns).map(|_| random.f32() * 2.0 - 1.0).collect();
    matrix(compute, columns, &values)
}

fn values(matrix: &Matrix) -> Vec<f32> {
    matrix.values.to_vec().unwrap()
}

fn close(left: &[f32], right: &[f32]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| (left - right).abs() <= 2e-5 * (1.0 + left.abs()))
}

fn options(arguments: &str) -> Options {
    Options::try_parse_from(["train", "--device", "cpu"].into_iter().chain(arguments.split_whitespace())).unwrap()
}

/// What a run of the program's loop left behind.
struct Run {
    result: Result<f64, TrainError>,
    output: String,
    retries: i64,
}

fn run(arguments: &str) -> Run {
    let options = options(arguments);
    let compute = setup::open(options.device, options.capacity).unwrap().compute;
    let mut output = Vec::new();
    let result = train(&options, &compute, &mut output);
    let retries = compute.allocator().memory_stats().num_alloc_retries;
    Run { result, output: String::from_utf8(output).unwrap(), retries }
}

#[test]
fn products_agree_with_the_definition_in_all_four_arrangements() {
    let compute = cpu();
    let random = &mut fastrand::Rng::with_seed(1);
    let (rows, inner, columns) = (5, 7, 3);
    for (left_transposed, right_transposed) in [(false, false), (false, true), (true, false), (true, true)] {
        let stored = |transposed, rows, columns| if transposed { (columns, rows) } else { (rows, columns) };
        let (left_rows, left_columns) = stored(left_transposed, rows, inner);
        let (right_rows, right_columns) = stored(right_transposed, inner, columns);
        let left = random_matrix(&compute, left_rows, left_columns, random);
        let right = random_matrix(&compute, right_rows, right_columns, random);
        let product = compute
            .matmul(
                if left_transposed { left.transposed() } else { left.plain() },
                if right_transposed { right.transposed() } else { right.plain() },
            )
            .unwrap();
        assert_eq!(product.shape(), (rows, columns));

        let element = |matrix: &Matrix, transposed: bool, row: usize, column: usize| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            values(matrix)[row * matrix.columns + column]
        };
        let mut expected = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let term = |k| element(&left, left_transposed, row, k) * element(&right, right_transposed, k, column);
                expected.push((0..inner).map(term).sum::<f32>());
            }
        }
        assert!(close(&values(&product), &expected), "{left_transposed} {right_transposed}");
    }
}

#[test]
fn softmax_stays_finite_for_large_logits_and_its_loss_is_minus_the_logarithm() {
    let compute = cpu();
    let logits = matrix(&compute, 3, &[1000.0, 1000.0, 1000.0, 0.0, 2.0_f32.ln(), f32::MIN]);
    let labels = Buffer::from_slice(compute.allocator(), &[2_u32, 1]).unwrap();
    let (probabilities, loss) = compute.softmax_cross_entropy(&logits, &labels).unwrap();
    let third = 1.0 / 3.0;
    assert!(close(&values(&probabilities), &[third, third, third, third, 2.0 / 3.0, 0.0]));
    let expected = (3.0_f64.ln() + 1.5_f64.ln()) / 2.0;
    assert!((loss - expected).abs() < 1e-6, "{loss} is not {expected}");
}

#[test]
fn relu_and_its_gradient_are_zero_where_the_input_was_not_above_zero() {
    let compute = cpu();
    let mut output = matrix(&compute, 4, &[-1.0, 0.0, 0.5, 2.0]);
    compute.relu(&mut output).unwrap();
    assert_eq!(values(&output), [0.0, 0.0, 0.5, 2.0]);
    let mut gradient = matrix(&compute, 4, &[1.0, 2.0, 3.0, 4.0]);
    compute.relu_backward(&mut gradient, &output).unwrap();
    assert_eq!(values(&gradient), [0.0, 0.0, 3.0, 4.0]);
}

#[test]
fn the_first_of_equal_largest_values_wins() {
    let compute = cpu();
    let votes = matrix(&compute, 3, &[1.0, 3.0, 2.0, 5.0, 5.0, 0.0, -3.0, -2.0, -2.0]);
    assert_eq!(compute.largest_columns(&votes).unwrap(), [1, 0, 1]);
}

#[test]
fn adam_moves_by_the_learning_rate_in_its_first_step_whatever_the_gradient() {
    let compute = cpu();
    let zeros = || Matrix::zeros(compute.allocator(), 1, 3).unwrap();
    let mut parameter = matrix(&compute, 3, &[1.0, 1.0, 1.0]);
    let gradient = matrix(&compute, 3, &[0.5, -1000.0, 0.0]);
    let (mut first, mut second) = (zeros(), zeros());
    let step = AdamStep { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, correction1: 0.1, correction2: 0.001 };
    compute.adam(step, 0.25, &mut parameter, &gradient, &mut first, &mut second).unwrap();
    assert!(close(&values(&parameter), &[0.75, 1.25, 1.0]), "{:?}", values(&parameter));
    assert!(close(&values(&first), &[0.05, -100.0, 0.0]));
    assert!(close(&values(&second), &[0.00025, 1000.0, 0.0]));
}

#[test]
fn gradients_agree_with_finite_differences_of_the_loss() {
    let _turn = turn();
    let compute = cpu();
    memtrack::set_default(compute.allocator());
    let mut model = Model::new(compute.allocator(), 5, &mut fastrand::Rng::with_seed(3)).unwrap();
    let digits = Digits::load().unwrap().select(&[0, 1, 2, 3, 4, 5, 6]);
    let batch = Batch::new(compute.allocator(), &digits).unwrap();
    let activations = forward(&compute, &model, &batch).unwrap();
    let gradients = backward(&compute, &model, &batch, activations).unwrap();

    let distance = 1e-3;
    for (layer, gradient) in gradients.iter().enumerate() {
        for (is_weights, gradient) in [(true, values(&gradient.weights)), (false, values(&gradient.biases))] {
            for (index, &exact) in gradient.iter().enumerate() {
                let mut loss_at = |change: f32| {
                    let layer = &mut model.layers[layer];
                    let parameter = if is_weights { &mut layer.weights } else { &mut layer.biases };
                    parameter.values.as_mut_slice().unwrap()[index] += change;
                    forward(&compute, &model, &batch).unwrap().loss
                };
                let above = loss_at(distance);
                let below = loss_at(-2.0 * distance);
                loss_at(distance);
                let measured = ((above - below) / (2.0 * f64::from(distance))) as f32;
                assert!(
                    (measured - exact).abs() <= 1e-3 + 0.02 * exact.abs(),
                    "layer {layer}, weights {is_weights}, {index}: {exact} by the formula, {measured} measured"
                );
            }
        }
    }
}

#[test]
fn a_small_network_learns_and_two_runs_with_one_seed_are_the_same() {
    let _turn = turn();
    let arguments = "--hidden 64 --batch-size 32 --epochs 5 --no-table";
    let first = run(arguments);
    let accuracy = first.result.unwrap();
    assert!(accuracy > 0.93, "{accuracy} of the held-out digits");
    assert_eq!(run(arguments).output, first.output);
    assert_ne!(run(&format!("{arguments} --seed 1")).output, first.output);
}

#[test]
fn losses_are_written_one_a_step_and_fall() {
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("memtrack-train-losses-{}", std::process::id()));
    run(&format!("--hidden 16 --epochs 2 --losses {}", path.display())).result.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // 1438 images in steps of 128.
    assert_eq!(lines.len(), 2 * 12);
    assert_eq!((lines[23]["epoch"].as_u64(), lines[23]["step"].as_u64()), (Some(2), Some(12)));
    let loss = |line: usize| lines[line]["loss"].as_f64().unwrap();
    assert!(loss(23) < loss(0), "{} after {}", loss(23), loss(0));
}

#[test]
fn a_snapshot_holds_the_run_and_what_is_live_at_its_end_or_failure() {
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("memtrack-train-snapshot-{}", std::process::id()));
    for (arguments, ends_well) in [("--hidden 16 --epochs 1", true), ("--epochs 1 --capacity 6MiB", false)] {
        let outcome = run(&format!("{arguments} --snapshot {}", path.display())).result;
        assert_eq!(outcome.is_ok(), ends_well, "{outcome:?}");
        let snapshot = Snapshot::from_pickle(&std::fs::read(&path).unwrap(), &ReadLimits::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        snapshot.check_consistency().unwrap();
        assert!(snapshot.segments.iter().any(|segment| segment.allocated_size > 0), "the model is live");
        let out_of_memory = snapshot.device_traces.iter().flatten().any(|entry| entry.action.name() == "oom");
        assert_eq!(out_of_memory, !ends_well);
    }
}

#[test]
fn a_losses_file_that_cannot_be_created_is_a_bad_value() {
    let _turn = turn();
    let error = run("--losses /nowhere/at/all.jsonl").result.unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert!(error.to_string().contains("`--losses /nowhere/at/all.jsonl`"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_named() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let _turn = turn();
    let losses = run("--hidden 16 --epochs 2 --losses /dev/full");
    let error = losses.result.unwrap_err();
    assert!(error.to_string().contains("`--losses /dev/full` cannot be written"), "{error}");
    assert!(!losses.output.contains("epoch 2"), "told late: {}", losses.output);

    let options = options("--hidden 16 --epochs 1");
    let compute = setup::open(options.device, options.capacity).unwrap().compute;
    let error = train(&options, &compute, &mut Full).unwrap_err();
    assert!(error.to_string().contains("the output cannot be written"), "{error}");
    assert_eq!(error.exit_status(), 1);
}

#[test]
fn a_capacity_that_the_machine_does_not_have_is_refused() {
    let _turn = turn();
    let machine_bytes = Host::new().total_bytes();
    setup::open(DeviceChoice::Cpu, Some(machine_bytes)).unwrap();
    let error = setup::open(DeviceChoice::Cpu, Some(machine_bytes + 1)).err().unwrap();
    assert_eq!(error.exit_status(), 2);
    let message = error.to_string();
    assert!(message.contains("`--capacity`") && message.contains(&machine_bytes.to_string()), "{message}");
}

#[test]
fn a_loss_that_runs_away_ends_the_run_with_advice() {
    let _turn = turn();
    let error = run("--hidden 16 --learning-rate 1e30 --epochs 3").result.unwrap_err();
    assert!(matches!(error, TrainError::Diverged { .. }), "{error}");
    assert!(error.to_string().contains("--learning-rate"));
}

#[test]
fn with_the_capacity_that_the_readme_names_requests_are_retried_and_training_is_the_same() {
    let _turn = turn();
    let with_room = run("--epochs 1 --no-table");
    assert_eq!(with_room.retries, 0);
    let tight = run("--epochs 1 --no-table --capacity 26MiB");
    assert!(tight.retries > 0);
    assert_eq!(tight.result.unwrap(), with_room.result.unwrap());
}

#[test]
fn with_the_smaller_capacities_that_the_readme_names_memory_runs_out() {
    let _turn = turn();
    for (capacity, phase) in [("16MiB", Some("evaluate")), ("6MiB", Some("optimizer")), ("2MiB", None)] {
        let error = run(&format!("--epochs 1 --capacity {capacity}")).result.unwrap_err();
        let TrainError::Allocation(AllocationError::OutOfMemory(out_of_memory)) = &error else {
            panic!("{capacity}: {error}")
        };
        assert_eq!(out_of_memory.phase, phase, "{capacity}");
        assert_eq!(error.exit_status(), 1);
    }
}
