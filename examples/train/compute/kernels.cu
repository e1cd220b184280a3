// One thread an element, a column or a row; sums run in a fixed order, so that a run can be repeated to the bit.

extern "C" __global__ void add_row(float *matrix, const float *row, unsigned count, unsigned columns) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) matrix[i] += row[i % columns];
}

extern "C" __global__ void relu(float *matrix, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) matrix[i] = fmaxf(matrix[i], 0.0f);
}

extern "C" __global__ void relu_backward(float *gradient, const float *output, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && output[i] <= 0.0f) gradient[i] = 0.0f;
}

extern "C" __global__ void softmax_cross_entropy(const float *logits, const unsigned *labels, float *probabilities,
                                                 float *losses, unsigned rows, unsigned columns) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float *in = logits + (size_t)row * columns;
    float *out = probabilities + (size_t)row * columns;
    // Less the largest, so that no exponential overflows.
    float largest = in[0];
    for (unsigned column = 1; column < columns; column++) largest = fmaxf(largest, in[column]);
    float sum = 0.0f;
    for (unsigned column = 0; column < columns; column++) {
        out[column] = expf(in[column] - largest);
        sum += out[column];
    }
    for (unsigned column = 0; column < columns; column++) out[column] /= sum;
    losses[row] = logf(sum) - (in[labels[row]] - largest);
}

extern "C" __global__ void softmax_cross_entropy_backward(float *probabilities, const unsigned *labels, unsigned rows,
                                                          unsigned columns) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    float truth = i % columns == labels[i / columns] ? 1.0f : 0.0f;
    probabilities[i] = (probabilities[i] - truth) * (1.0f / rows);
}

extern "C" __global__ void column_sums(const float *matrix, float *sums, unsigned rows, unsigned columns) {
    unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = 0.0f;
    for (unsigned row = 0; row < rows; row++) sum += matrix[(size_t)row * columns + column];
    sums[column] = sum;
}

extern "C" __global__ void adam_direction(const float *gradient, float *first, float *second, float *direction,
                                          unsigned count, float beta1, float beta2, float epsilon, float correction1,
                                          float correction2) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float g = gradient[i];
    first[i] = beta1 * first[i] + (1.0f - beta1) * g;
    second[i] = beta2 * second[i] + (1.0f - beta2) * g * g;
    direction[i] = (first[i] / correction1) / (sqrtf(second[i] / correction2) + epsilon);
}

extern "C" __global__ void add_scaled(float *target, float scale, const float *source, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] += scale * source[i];
}

extern "C" __global__ void largest_columns(const float *matrix, unsigned *largest, unsigned rows, unsigned columns) {
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float *in = matrix + (size_t)row * columns;
    unsigned best = 0;
    for (unsigned column = 1; column < columns; column++)
        if (in[column] > in[best]) best = column;
    largest[row] = best;
}
