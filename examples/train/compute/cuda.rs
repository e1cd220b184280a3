//! The loops on a GPU: cuBLAS for products, `kernels.cu` for everything else.
//!
//! Products are computed in full float32 precision, without TF32, so that losses can be compared with the CPU's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cudarc::cublas::sys::{cublasMath_t, cublasOperation_t, cublasSetMathMode};
use cudarc::cublas::{CudaBlas, Gemm as _, GemmConfig};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc;
use memtrack::Buffer;

use super::{AdamStep, Kernels, libraries};
use crate::error::TrainError;
use crate::matrix::{Factor, Matrix};

/// Kernels for one GPU, all on its default stream.
pub(crate) struct CudaKernels {
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    add_row: CudaFunction,
    relu: CudaFunction,
    relu_backward: CudaFunction,
    softmax_cross_entropy: CudaFunction,
    softmax_cross_entropy_backward: CudaFunction,
    column_sums: CudaFunction,
    adam_direction: CudaFunction,
    add_scaled: CudaFunction,
    largest_columns: CudaFunction,
}

impl CudaKernels {
    /// Loads cuBLAS and compiles the kernels (a fraction of a second).
    ///
    /// # Errors
    ///
    /// [`TrainError::MissingLibrary`] or [`TrainError::MissingFunction`] when cuBLAS or nvrtc is not there or is not what
    /// its name says; what either of them or the driver refuses.
    pub(crate) fn load(context: &Arc<CudaContext>) -> Result<Self, TrainError> {
        // Until the end of this function, when cudarc holds the libraries itself.
        let _libraries = libraries::find()?;
        // The second line behind that look-up, for the answers that cudarc unwraps; nothing of the half-made kernels
        // survives a panic.
        catch_unwind(AssertUnwindSafe(|| Self::compile(context))).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let message = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned();
            Err(TrainError::BindingsPanicked { message })
        })
    }

    fn compile(context: &Arc<CudaContext>) -> Result<Self, TrainError> {
        let stream = context.default_stream();
        let blas = CudaBlas::new(Arc::clone(&stream))?;
        // SAFETY: the handle was just made and lives as long as `blas`.
        unsafe { cublasSetMathMode(*blas.handle(), cublasMath_t::CUBLAS_PEDANTIC_MATH) }.result()?;

        let module = context.load_module(nvrtc::compile_ptx(include_str!("kernels.cu"))?)?;
        Ok(Self {
            stream,
            blas,
            add_row: module.load_function("add_row")?,
            relu: module.load_function("relu")?,
            relu_backward: module.load_function("relu_backward")?,
            softmax_cross_entropy: module.load_function("softmax_cross_entropy")?,
            softmax_cross_entropy_backward: module.load_function("softmax_cross_entropy_backward")?,
            column_sums: module.load_function("column_sums")?,
            adam_direction: module.load_function("adam_direction")?,
            add_scaled: module.load_function("add_scaled")?,
            largest_columns: module.load_function("largest_columns")?,
        })
    }
}

/// Launches one of the kernels of `kernels.cu` with at least so many threads.
macro_rules! launch {
    ($kernels:ident.$kernel:ident, $threads:expr, $($argument:expr),+) => {{
        let mut launch = $kernels.stream.launch_builder(&$kernels.$kernel);
        $(launch.arg($argument);)+
        // SAFETY: the arguments are those of the kernel's declaration, in order and type, and the kernels touch
        // nothing beyond the counts given, which `Compute` has checked against the buffers. The default stream, on
        // which the buffers were allocated, orders all launches.
        unsafe { launch.launch(LaunchConfig::for_num_elems($threads)) }?;
        Ok(())
    }};
}

impl Kernels for CudaKernels {
    fn matmul(&self, left: Factor<'_>, right: Factor<'_>, product: &mut Matrix) -> Result<(), TrainError> {
        let ((rows, inner), (_, columns)) = (left.shape(), right.shape());
        // cuBLAS stores columns one after another, so it sees each of our matrices transposed; and the transpose of
        // left · right is the product of the transposes in reverse order.
        let config = GemmConfig {
            transa: operation(right),
            transb: operation(left),
            m: columns as i32,
            n: rows as i32,
            k: inner as i32,
            alpha: 1.0,
            lda: right.matrix.columns as i32,
            ldb: left.matrix.columns as i32,
            beta: 0.0,
            ldc: columns as i32,
        };
        let (left, right) = (left.matrix.values.cuda()?, right.matrix.values.cuda()?);
        let mut product = product.values.cuda_mut()?;
        // SAFETY: `Compute` has checked that the shapes fit, and each matrix's buffer has rows times columns elements.
        unsafe { self.blas.gemm(config, &right, &left, &mut product) }?;
        Ok(())
    }

    fn add_row(&self, matrix: &mut Matrix, row: &Matrix) -> Result<(), TrainError> {
        let (count, columns) = (count(matrix), matrix.columns as u32);
        let mut matrix = matrix.values.cuda_mut()?;
        let row = row.values.cuda()?;
        launch!(self.add_row, count, &mut matrix, &row, &count, &columns)
    }

    fn relu(&self, matrix: &mut Matrix) -> Result<(), TrainError> {
        let count = count(matrix);
        let mut matrix = matrix.values.cuda_mut()?;
        launch!(self.relu, count, &mut matrix, &count)
    }

    fn relu_backward(&self, gradient: &mut Matrix, output: &Matrix) -> Result<(), TrainError> {
        let count = count(gradient);
        let mut gradient = gradient.values.cuda_mut()?;
        let output = output.values.cuda()?;
        launch!(self.relu_backward, count, &mut gradient, &output, &count)
    }

    fn softmax_cross_entropy(
        &self,
        logits: &Matrix,
        labels: &Buffer<u32>,
        probabilities: &mut Matrix,
        losses: &mut Matrix,
    ) -> Result<(), TrainError> {
        let (rows, columns) = (logits.rows as u32, logits.columns as u32);
        let (logits, labels) = (logits.values.cuda()?, labels.cuda()?);
        let mut probabilities = probabilities.values.cuda_mut()?;
        let mut losses = losses.values.cuda_mut()?;
        launch!(self.softmax_cross_entropy, rows, &logits, &labels, &mut probabilities, &mut losses, &rows, &columns)
    }

    fn softmax_cross_entropy_backward(
        &self,
        probabilities: &mut Matrix,
        labels: &Buffer<u32>,
    ) -> Result<(), TrainError> {
        let (count, rows, columns) = (count(probabilities), probabilities.rows as u32, probabilities.columns as u32);
        let mut probabilities = probabilities.values.cuda_mut()?;
        let labels = labels.cuda()?;
        launch!(self.softmax_cross_entropy_backward, count, &mut probabilities, &labels, &rows, &columns)
    }

    fn column_sums(&self, matrix: &Matrix, sums: &mut Matrix) -> Result<(), TrainError> {
        let (rows, columns) = (matrix.rows as u32, matrix.columns as u32);
        let matrix = matrix.values.cuda()?;
        let mut sums = sums.values.cuda_mut()?;
        launch!(self.column_sums, columns, &matrix, &mut sums, &rows, &columns)
    }

    fn adam_direction(
        &self,
        step: AdamStep,
        gradient: &Matrix,
        first_moment: &mut Matrix,
        second_moment: &mut Matrix,
        direction: &mut Matrix,
    ) -> Result<(), TrainError> {
        let count = count(gradient);
        let gradient = gradient.values.cuda()?;
        let mut first = first_moment.values.cuda_mut()?;
        let mut second = second_moment.values.cuda_mut()?;
        let mut direction = direction.values.cuda_mut()?;
        let AdamStep { beta1, beta2, epsilon, correction1, correction2 } = step;
        launch!(
            self.adam_direction,
            count,
            &gradient,
            &mut first,
            &mut second,
            &mut direction,
            &count,
            &beta1,
            &beta2,
            &epsilon,
            &correction1,
            &correction2
        )
    }

    fn add_scaled(&self, target: &mut Matrix, scale: f32, source: &Matrix) -> Result<(), TrainError> {
        let count = count(target);
        let mut target = target.values.cuda_mut()?;
        let source = source.values.cuda()?;
        launch!(self.add_scaled, count, &mut target, &scale, &source, &count)
    }

    fn largest_columns(&self, matrix: &Matrix, columns: &mut Buffer<u32>) -> Result<(), TrainError> {
        let (rows, width) = (matrix.rows as u32, matrix.columns as u32);
        let matrix = matrix.values.cuda()?;
        let mut largest = columns.cuda_mut()?;
        launch!(self.largest_columns, rows, &matrix, &mut largest, &rows, &width)
    }
}

/// Elements, for a kernel. The options keep every matrix far below 2^32 of them.
fn count(matrix: &Matrix) -> u32 {
    (matrix.rows * matrix.columns) as u32
}

fn operation(factor: Factor<'_>) -> cublasOperation_t {
    if factor.transposed { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N }
}
