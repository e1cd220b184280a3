//! The GPU's kernels against the CPU's, on the same numbers.

use std::sync::Arc;

use memtrack::device::{Cuda, Host};
use memtrack::{Buffer, CachingAllocator};

use super::{AdamStep, Compute, CpuKernels, CudaKernels};
use crate::error::TrainError;
use crate::matrix::Matrix;

/// Runs every operation once on matrices made from `seed` and returns all results, one after another.
fn every_operation(compute: &Compute, seed: u64) -> Result<Vec<f32>, TrainError> {
    // No size is a multiple of a block or a warp, so that edges are covered.
    let (rows, inner, columns) = (97, 131, 71);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut matrix = |rows: usize, columns: usize| {
        let values: Vec<f32> = (0..rows * columns).map(|_| random.f32() * 2.0 - 1.0).collect();
        Matrix::from_rows(compute.allocator(), &values, columns)
    };
    let (left, right) = (matrix(rows, inner)?, matrix(inner, columns)?);
    let (left_stored, right_stored) = (matrix(inner, rows)?, matrix(columns, inner)?);
    let (row, mut parameter, gradient) = (matrix(1, columns)?, matrix(rows, columns)?, matrix(rows, columns)?);
    let (mut first, mut second) = (matrix(rows, columns)?, Matrix::zeros(compute.allocator(), rows, columns)?);
    let labels: Vec<u32> = (0..rows as u32).map(|row| row % columns as u32).collect();
    let labels = Buffer::from_slice(compute.allocator(), &labels)?;

    let mut results = Vec::new();
    let mut keep = |matrix: &Matrix| -> Result<(), TrainError> {
        results.extend(matrix.values.to_vec()?);
        Ok(())
    };
    let mut product = compute.matmul(left.plain(), right.plain())?;
    keep(&product)?;
    keep(&compute.matmul(left_stored.transposed(), right.plain())?)?;
    keep(&compute.matmul(left.plain(), right_stored.transposed())?)?;
    keep(&compute.matmul(left_stored.transposed(), right_stored.transposed())?)?;
    compute.add_row(&mut product, &row)?;
    keep(&product)?;
    let (probabilities, loss) = compute.softmax_cross_entropy(&product, &labels)?;
    keep(&probabilities)?;
    let mut delta = compute.softmax_cross_entropy_backward(probabilities, &labels)?;
    keep(&delta)?;
    compute.relu(&mut product)?;
    keep(&product)?;
    compute.relu_backward(&mut delta, &gradient)?;
    keep(&delta)?;
    keep(&compute.column_sums(&product)?)?;
    let step = AdamStep { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, correction1: 0.1, correction2: 0.001 };
    compute.adam(step, 0.01, &mut parameter, &gradient, &mut first, &mut second)?;
    for matrix in [&parameter, &first, &second] {
        keep(matrix)?;
    }
    results.push(loss as f32);
    results.extend(compute.largest_columns(&gradient)?.into_iter().map(|column| column as f32));
    Ok(results)
}

/// Compares nothing on a machine without a GPU, and says so. `scripts/gpu-check` sets `MEMTRACK_REQUIRE_GPU`, by which a
/// missing GPU is a failure.
#[test]
fn every_operation_on_the_gpu_agrees_with_the_cpu() {
    let cuda = match Cuda::new(0) {
        Ok(cuda) => Arc::new(cuda),
        Err(why) => {
            assert!(std::env::var_os("MEMTRACK_REQUIRE_GPU").is_none(), "{why}");
            eprintln!("not compared: {why}");
            return;
        }
    };
    let kernels = CudaKernels::load(cuda.context()).unwrap();
    let gpu = Compute::new(CachingAllocator::new(cuda), Box::new(kernels));
    let cpu = Compute::new(CachingAllocator::new(Arc::new(Host::new())), Box::new(CpuKernels));
    for seed in 0..10 {
        let (gpu, cpu) = (every_operation(&gpu, seed).unwrap(), every_operation(&cpu, seed).unwrap());
        assert_eq!(gpu.len(), cpu.len());
        for (index, (gpu, cpu)) in gpu.iter().zip(&cpu).enumerate() {
            assert!((gpu - cpu).abs() <= 1e-4 * (1.0 + cpu.abs()), "seed {seed}, result {index}: {gpu} and {cpu}");
        }
    }
}
