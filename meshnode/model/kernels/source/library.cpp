// The functions that meshnode.model.kernels calls through ctypes. They block, and only one thread may call them at
// a time for one Threads. Nothing here allocates but scratch memory.
#include <new>

#include "attention.hpp"
#include "blocks.hpp"
#include "product.hpp"
#include "threads.hpp"

namespace meshnode {
namespace {

struct Layer {
    // Norms are null where the layer has none. q_norm and k_norm are over a head, or over all heads (wide).
    const float *attention_norm, *q_norm, *k_norm, *attention_post_norm, *feed_forward_norm, *feed_forward_post_norm;
    Matrix qkv, output, gate_up, down;  // gate_up: panels of gate and up alternate
    int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
    int32_t window, activation, wide_norms, rotation;  // rotation: which of the step's tables; below 0: none
    float softcap, scale, eps, residual;
};

struct Step {
    int32_t rows, hidden_size, kv_format, first_layer;
    float* hidden;             // [rows, hidden_size], changed in place
    const int32_t* positions;  // [rows]
    const int32_t* sessions;   // [rows], indices of caches; rows of a session are consecutive
    const Cache* caches;
    const float* const* rotations;  // tables [positions, rotary_dim]: cosines, then sines
};

// Buffers of one call, kept for the next.
struct Scratch {
    std::vector<float> normed, qkv, mixed, inner, scales, sums;
    std::vector<int8_t> quants;
    std::vector<int32_t> totals;
};

struct Engine {
    explicit Engine(int threads) : threads(threads) {}
    Threads threads;
    Scratch scratch;
};

void normalise(const float* x, const float* weight, int size, float eps, float* out) {
    __m256 parts[4];
    for (auto& part : parts) part = _mm256_setzero_ps();
    int i = 0;
    for (; i + 32 <= size; i += 32) {
        for (int j = 0; j < 4; j++) {
            const __m256 v = _mm256_loadu_ps(x + i + j * LANES);
            parts[j] = _mm256_fmadd_ps(v, v, parts[j]);
        }
    }
    float squares = sum(_mm256_add_ps(_mm256_add_ps(parts[0], parts[1]), _mm256_add_ps(parts[2], parts[3])));
    for (; i < size; i++) squares = std::fma(x[i], x[i], squares);
    const float factor = 1.0f / std::sqrt(squares / float(size) + eps);
    for (int j = 0; j < size; j++) out[j] = x[j] * factor * weight[j];
}

// Rows per item where the work of a row is small.
constexpr int ROWS_PER_ITEM = 4;

template <class Each>
void for_rows(Threads& threads, int rows, const Each& each) {
    if (rows <= ROWS_PER_ITEM) {
        for (int row = 0; row < rows; row++) each(row);
        return;
    }
    threads.run((rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM, [&](int item) {
        const int stop = std::min((item + 1) * ROWS_PER_ITEM, rows);
        for (int row = item * ROWS_PER_ITEM; row < stop; row++) each(row);
    });
}

// Floats from row to row of a buffer. Rows that begin at the same place of a page would push one another out of
// the first cache.
int64_t spaced(int width) { return width % 512 == 0 ? width + PANEL : width; }

// The same for bytes of quants.
int64_t spaced_quants(int groups) { return groups % 16 == 0 ? (groups + 2) * GROUP : groups * GROUP; }

// The rows as the matrix reads them, normalised first if there is a norm.
Rows prepare(Engine& engine, const Matrix& m, const float* x, int64_t stride, int rows, const float* norm, float eps) {
    Scratch& s = engine.scratch;
    const int width = m.inputs, groups = m.groups();
    const int64_t apart = spaced(width);
    if (norm) s.normed.resize(size_t(rows) * size_t(apart));
    const int64_t quants_apart = spaced_quants(groups);
    if (m.integers()) {
        s.quants.resize(size_t(rows) * size_t(quants_apart));
        s.scales.resize(size_t(rows) * size_t(groups));
        s.totals.resize(size_t(rows) * size_t(groups));
    }
    if (norm || m.integers()) {
        for_rows(engine.threads, rows, [&](int row) {
            const int64_t block = int64_t(row) * groups;
            const float* from = x + row * stride;
            if (norm) {
                normalise(from, norm, width, eps, s.normed.data() + row * apart);
                from = s.normed.data() + row * apart;
            }
            if (m.integers()) {
                quantise_row(from, width, s.quants.data() + row * quants_apart, s.scales.data() + block,
                             s.totals.data() + block);
            }
        });
    }
    return {norm ? s.normed.data() : x, norm ? apart : stride, s.quants.data(), quants_apart, s.scales.data(),
            s.totals.data()};
}

constexpr int ROW_BLOCK = 96;
constexpr int64_t ITEM_BYTES = 1 << 18;

// Calls finish(first output, row, count, sums) for `width` panels at a time; sums is [width][rows of block][16].
template <int WIDTH, class Finish>
void product(Engine& engine, const Matrix& m, const Rows& x, int rows, const Finish& finish) {
    const int units = m.panels() / WIDTH;
    // Items large enough to be worth taking, and enough of them to share the work evenly.
    int64_t per_item = std::max<int64_t>(1, ITEM_BYTES * (rows > ROW_BLOCK ? 4 : 1) / (m.panel_bytes() * WIDTH));
    per_item = std::max<int64_t>(1, std::min<int64_t>(per_item, units / (engine.threads.count() * 4)));
    if (WIDTH == 1) per_item += per_item % 2;  // two panels at a time
    engine.threads.run((units + per_item - 1) / per_item, [&](int item) {
        alignas(64) float sums[2 * ROW_BLOCK * PANEL];
        const int stop = int(std::min<int64_t>((item + 1) * per_item, units));
        for (int row = 0; row < rows; row += ROW_BLOCK) {
            const int count = std::min(ROW_BLOCK, rows - row);
            for (int unit = int(item * per_item); unit < stop;) {
                const int panels = WIDTH == 2 ? 2 : std::min(2, stop - unit);
                panel_products(m, unit * WIDTH, panels, x, row, count, sums);
                for (int at = 0; at < panels / WIDTH; at++, unit++) {
                    finish(unit * PANEL, row, count, sums + at * count * PANEL);
                }
            }
        }
    });
}

void store(float* to, int64_t stride, int outputs, int output, int row, int count, const float* sums) {
    const int width = std::min(PANEL, outputs - output);
    for (int r = 0; r < count; r++) {
        std::memcpy(to + (row + r) * stride + output, sums + r * PANEL, size_t(width) * 4);
    }
}

void product_into(Engine& engine, const Matrix& m, const Rows& x, int rows, float* to) {
    product<1>(engine, m, x, rows, [&](int output, int row, int count, const float* sums) {
        store(to, m.outputs, m.outputs, output, row, count, sums);
    });
}

// hidden += product, normalised first where there is a norm behind the product.
void add_product(Engine& engine, const Matrix& m, const Rows& x, const Step& step, const Layer& layer,
                 const float* norm) {
    const int width = m.outputs;
    const float factor = layer.residual;
    if (norm) {
        std::vector<float>& sums = engine.scratch.sums;
        sums.resize(size_t(step.rows) * size_t(width));
        product_into(engine, m, x, step.rows, sums.data());
        for_rows(engine.threads, step.rows, [&](int row) {
            float *from = sums.data() + int64_t(row) * width, *hidden = step.hidden + int64_t(row) * width;
            normalise(from, norm, width, layer.eps, from);
            for (int i = 0; i < width; i++) hidden[i] += from[i];
        });
        return;
    }
    product<1>(engine, m, x, step.rows, [&](int output, int row, int count, const float* sums) {
        const int columns = std::min(PANEL, width - output);
        for (int r = 0; r < count; r++) {
            float* hidden = step.hidden + int64_t(row + r) * width + output;
            for (int i = 0; i < columns; i++) hidden[i] += factor * sums[r * PANEL + i];
        }
    });
}

void rotate(float* head, const float* table, int size) {
    const int half = size / 2;
    for (int i = 0; i < half; i++) {
        const float a = head[i], b = head[i + half], cosine = table[i], sine = table[half + i];
        // Each product is rounded, as in torch.
        head[i] = a * cosine - b * sine;
        head[i + half] = b * cosine + a * sine;
    }
}

// Normalise and rotate queries and keys of a row; scale the queries; write keys and values to the cache.
void place(const Layer& layer, const Step& step, int index, int row, float* qkv) {
    const int d = layer.head_dim, heads = layer.num_heads, kv_heads = layer.num_kv_heads;
    float *queries = qkv, *keys = qkv + heads * d, *values = keys + kv_heads * d;
    const int position = step.positions[row];
    if (layer.q_norm && layer.wide_norms) {
        normalise(queries, layer.q_norm, heads * d, layer.eps, queries);
        normalise(keys, layer.k_norm, kv_heads * d, layer.eps, keys);
    } else if (layer.q_norm) {
        for (int h = 0; h < heads; h++) normalise(queries + h * d, layer.q_norm, d, layer.eps, queries + h * d);
        for (int h = 0; h < kv_heads; h++) normalise(keys + h * d, layer.k_norm, d, layer.eps, keys + h * d);
    }
    if (layer.rotation >= 0) {
        const float* table = step.rotations[layer.rotation] + int64_t(position) * layer.rotary_dim;
        for (int h = 0; h < heads + kv_heads; h++) rotate(queries + h * d, table, layer.rotary_dim);
    }
    for (int i = 0; i < heads * d; i++) queries[i] *= layer.scale;
    const Cache& cache = step.caches[step.sessions[row]];
    const int size = step.kv_format == FLOAT32 ? 4 : 2;
    for (int h = 0; h < kv_heads; h++) {
        const int64_t offset = int64_t(position % BLOCK) * d * size;
        for (int kind = 0; kind < 2; kind++) {
            uint8_t* to = cache.block(position / BLOCK, step.first_layer + index, kind, h, d, size) + offset;
            write_floats(to, (kind ? values : keys) + h * d, d, step.kv_format);
        }
    }
}

constexpr int FEWEST_QUERIES = 16, MOST_QUERIES = 48;

void attention(Engine& engine, const Layer& layer, const Step& step, int index) {
    Scratch& s = engine.scratch;
    const int width = (layer.num_heads + 2 * layer.num_kv_heads) * layer.head_dim;
    const int64_t mixed_width = spaced(layer.num_heads * layer.head_dim);
    s.qkv.resize(size_t(step.rows) * size_t(width));
    s.mixed.resize(size_t(step.rows) * size_t(mixed_width));
    const Rows x =
        prepare(engine, layer.qkv, step.hidden, layer.qkv.inputs, step.rows, layer.attention_norm, layer.eps);
    product_into(engine, layer.qkv, x, step.rows, s.qkv.data());
    for_rows(engine.threads, step.rows, [&](int row) { place(layer, step, index, row, s.qkv.data() + int64_t(row) * width); });
    const int group = layer.num_heads / layer.num_kv_heads;
    // Heads that share keys share a tile, unless there would be too few tiles for the threads.
    const int heads = step.rows * layer.num_kv_heads >= 4 * engine.threads.count() ? group : 1;
    // Keys and values are read, and made floats, once for each tile.
    const int share = step.rows * layer.num_heads / (8 * engine.threads.count());
    const int most = std::max(1, std::clamp(share, FEWEST_QUERIES, MOST_QUERIES) / heads);
    std::vector<AttentionTile> tiles;
    for (int row = 0; row < step.rows;) {
        const int session = step.sessions[row], position = step.positions[row];
        int rows = 1;
        while (rows < most && row + rows < step.rows && step.sessions[row + rows] == session) rows++;
        for (int head = 0; head < layer.num_heads; head += heads) {
            tiles.push_back({step.caches + session, row, rows, position, head, heads, head / group});
        }
        row += rows;
    }
    const AttentionShape shape{step.first_layer + index, layer.head_dim, layer.num_heads, layer.window,
                               step.kv_format, layer.softcap};
    // The longest first, so that no thread is left alone with one.
    engine.threads.run(int64_t(tiles.size()), [&](int item) {
        attend(tiles[tiles.size() - 1 - size_t(item)], shape, s.qkv.data(), width, s.mixed.data(), mixed_width);
    });
}

void feed_forward(Engine& engine, const Layer& layer, const Step& step) {
    Scratch& s = engine.scratch;
    const int width = layer.down.inputs;
    const int64_t apart = spaced(width);
    s.inner.resize(size_t(step.rows) * size_t(apart));
    const Rows x = prepare(engine, layer.gate_up, step.hidden, layer.gate_up.inputs, step.rows, layer.feed_forward_norm,
                           layer.eps);
    product<2>(engine, layer.gate_up, x, step.rows, [&](int output, int row, int count, const float* sums) {
        const float *gates = sums, *ups = sums + count * PANEL;
        alignas(32) float inner[ROW_BLOCK * PANEL];
        for (int i = 0; i < count * PANEL; i += LANES) {
            const __m256 gate = _mm256_loadu_ps(gates + i);
            const __m256 activated = layer.activation ? gelu(gate) : silu(gate);
            _mm256_store_ps(inner + i, _mm256_mul_ps(activated, _mm256_loadu_ps(ups + i)));
        }
        store(s.inner.data(), apart, width, output, row, count, inner);
    });
}

void run_layer(Engine& engine, const Layer& layer, const Step& step, int index) {
    attention(engine, layer, step, index);
    const Scratch& s = engine.scratch;
    Rows x = prepare(engine, layer.output, s.mixed.data(), spaced(layer.output.inputs), step.rows, nullptr, 0);
    add_product(engine, layer.output, x, step, layer, layer.attention_post_norm);
    if (layer.gate_up.data == nullptr) return;
    feed_forward(engine, layer, step);
    x = prepare(engine, layer.down, s.inner.data(), spaced(layer.down.inputs), step.rows, nullptr, 0);
    add_product(engine, layer.down, x, step, layer, layer.feed_forward_post_norm);
}

template <class Body>
int guarded(const Body& body) {
    try {
        body();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace
}  // namespace meshnode

using namespace meshnode;

#define MESHNODE_API __attribute__((visibility("default")))

extern "C" {

MESHNODE_API int64_t meshnode_matrix_bytes(const Matrix* m) { return m->panels() * m->panel_bytes(); }

MESHNODE_API void meshnode_pack_floats(const Matrix* m, const float* weights, uint8_t* to) { pack_floats(*m, weights, to); }

MESHNODE_API void meshnode_pack_integers(const Matrix* m, const int8_t* quants, const uint16_t* scales, const uint16_t* minima,
                            uint8_t* to) {
    pack_integers(*m, quants, scales, minima, to);
}

// Outputs [indices] of the matrix as floats, [count, inputs].
MESHNODE_API void meshnode_unpack(const Matrix* m, const int64_t* indices, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i++) unpack_row(*m, int(indices[i]), to + i * m->inputs);
}

// The weights of `count` blocks of a GGUF type. Any number of threads may call this at a time.
MESHNODE_API void meshnode_floats_of_blocks(int kind, const uint8_t* from, int64_t count, float* to) {
    floats_of_blocks(BlockKind(kind), from, count, to);
}

// The same for their numbers and quants apart, for the types of 32 weights; 0 if they cannot be taken over.
MESHNODE_API int meshnode_split_blocks(int kind, const uint8_t* from, int64_t count, int8_t* quants, uint16_t* scales,
                                       uint16_t* minima) {
    return split_blocks(BlockKind(kind), from, count, quants, scales, minima);
}

MESHNODE_API void* meshnode_start(int threads) { return new (std::nothrow) Engine(threads); }

MESHNODE_API void meshnode_stop(void* engine) { delete static_cast<Engine*>(engine); }

// rows [rows, inputs], normalised first if norm is not null, to [rows, outputs]; 1 if memory is short.
MESHNODE_API int meshnode_product(void* engine, const Matrix* m, const float* rows, int count, const float* norm, float eps,
                     float* to) {
    return guarded([&] {
        Engine& e = *static_cast<Engine*>(engine);
        product_into(e, *m, prepare(e, *m, rows, m->inputs, count, norm, eps), count, to);
    });
}

// The layers one after another on the step's rows; 1 if memory is short.
MESHNODE_API int meshnode_layers(void* engine, const Layer* layers, int count, const Step* step) {
    return guarded([&] {
        for (int i = 0; i < count; i++) run_layer(*static_cast<Engine*>(engine), layers[i], *step, i);
    });
}

}
