// Products of rows with one panel of weights. An output's sum has one order, whatever the number of rows:
// float formats add input after input with fused multiply-adds; integer formats add the 32 products of a group
// exactly, and then group after group.
#pragma once

#include <algorithm>

#include "matrix.hpp"

namespace meshnode {

// Rows as a product reads them. For integer formats each group of 32 inputs is rounded to int8 with a scale.
struct Rows {
    const float* values;    // [rows, inputs]
    int64_t stride;         // from row to row of the values
    const int8_t* quants;   // [rows, groups * 32]
    const float* scales;    // [rows, groups]
    const int32_t* totals;  // [rows, groups], sums of the quants
};

inline void quantise_row(const float* x, int inputs, int8_t* quants, float* scales, int32_t* totals) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int g = 0; g * GROUP < inputs; g++) {
        alignas(32) float padded[GROUP] = {};
        const float* from = x + g * GROUP;
        if (inputs - g * GROUP < GROUP) {
            std::memcpy(padded, from, size_t(inputs - g * GROUP) * 4);
            from = padded;
        }
        __m256 v[4], most = _mm256_setzero_ps(), poison = _mm256_setzero_ps();
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(from + i * LANES);
            most = _mm256_max_ps(_mm256_andnot_ps(sign, v[i]), most);
            poison = _mm256_fmadd_ps(v[i], _mm256_setzero_ps(), poison);
        }
        const bool finite = _mm256_movemask_ps(_mm256_cmp_ps(poison, poison, _CMP_UNORD_Q)) == 0;
        const float peak = largest(most);
        const __m256 factor = _mm256_set1_ps(peak > 0 ? 127.0f / peak : 0.0f);
        const __m256i bound = _mm256_set1_epi32(127);
        __m256i total = _mm256_setzero_si256(), whole[4];
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) {
            whole[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
            // Beyond 127 only if the factor overflowed, that is for peaks below 1e-36.
            whole[i] = _mm256_max_epi32(_mm256_min_epi32(whole[i], bound), _mm256_set1_epi32(-127));
            total = _mm256_add_epi32(total, whole[i]);
        }
        alignas(32) int32_t numbers[GROUP], parts[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < 4; i++) _mm256_store_si256(reinterpret_cast<__m256i*>(numbers) + i, whole[i]);
        _mm256_store_si256(reinterpret_cast<__m256i*>(parts), total);
        for (int i = 0; i < GROUP; i++) quants[g * GROUP + i] = int8_t(numbers[i]);
        totals[g] = 0;
        for (int part : parts) totals[g] += part;
        // Infinity and NaN become NaN, so that the engine can refuse them.
        scales[g] = finite ? peak / 127.0f : std::numeric_limits<float>::quiet_NaN();
    }
}

template <int FORMAT>
inline void load16(const uint8_t* panel, int64_t k, __m256& low, __m256& high) {
    if constexpr (FORMAT == FLOAT32) {
        const float* at = reinterpret_cast<const float*>(panel) + k * PANEL;
        low = _mm256_loadu_ps(at);
        high = _mm256_loadu_ps(at + LANES);
    } else if constexpr (FORMAT == BFLOAT16) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel) + k);
        low = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
        high = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(int(0xffff0000u))));
    } else {
        const __m128i* at = reinterpret_cast<const __m128i*>(panel) + k * 2;
        low = _mm256_cvtph_ps(_mm_loadu_si128(at));
        high = _mm256_cvtph_ps(_mm_loadu_si128(at + 1));
    }
}

#if defined(__AVX512F__)
template <int FORMAT>
inline __m512 load16(const uint8_t* panel, int64_t k) {
    if constexpr (FORMAT == FLOAT32) return _mm512_loadu_ps(reinterpret_cast<const float*>(panel) + k * PANEL);
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel) + k);
    if constexpr (FORMAT == FLOAT16) return _mm512_cvtph_ps(v);
    const __m256i low = _mm256_slli_epi32(v, 16), high = _mm256_and_si256(v, _mm256_set1_epi32(int(0xffff0000u)));
    return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
}

constexpr int TILE_ROWS = 12;
#else
constexpr int TILE_ROWS = 6;
#endif

// The processor's own prefetching stops at the end of each page of 4 KiB.
constexpr int64_t AHEAD = 4096;

inline void prefetch(const uint8_t* at) { _mm_prefetch(reinterpret_cast<const char*>(at + AHEAD), _MM_HINT_T0); }

// Adds inputs [from, to) of R rows to sums [R, 16]. A lane is an output, so its sum has the same bits at any width.
// With STREAM, the panel comes from memory and not from a cache.
template <int FORMAT, bool STREAM, int R>
void float_tile(const uint8_t* panel, int from, int to, const float* x, int64_t stride, float* sums) {
#if defined(__AVX512F__)
    __m512 all[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) all[r] = _mm512_loadu_ps(sums + r * PANEL);
    for (int k = from; k < to; k++) {
        if constexpr (STREAM) prefetch(panel + int64_t(k) * PANEL * (FORMAT == FLOAT32 ? 4 : 2));
        const __m512 weights = load16<FORMAT>(panel, k);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) all[r] = _mm512_fmadd_ps(_mm512_set1_ps(x[r * stride + k]), weights, all[r]);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) _mm512_storeu_ps(sums + r * PANEL, all[r]);
#else
    __m256 low[R], high[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        low[r] = _mm256_loadu_ps(sums + r * PANEL);
        high[r] = _mm256_loadu_ps(sums + r * PANEL + LANES);
    }
    for (int k = from; k < to; k++) {
        if constexpr (STREAM) prefetch(panel + int64_t(k) * PANEL * (FORMAT == FLOAT32 ? 4 : 2));
        __m256 a, b;
        load16<FORMAT>(panel, k, a, b);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const __m256 value = _mm256_broadcast_ss(x + r * stride + k);
            low[r] = _mm256_fmadd_ps(value, a, low[r]);
            high[r] = _mm256_fmadd_ps(value, b, high[r]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        _mm256_storeu_ps(sums + r * PANEL, low[r]);
        _mm256_storeu_ps(sums + r * PANEL + LANES, high[r]);
    }
#endif
}

template <int FORMAT, bool STREAM, int R = TILE_ROWS>
void tile_of(int rows, const uint8_t* panel, int from, int to, const float* x, int64_t stride, float* sums) {
    if constexpr (R > 1) {
        if (rows < R) return tile_of<FORMAT, STREAM, R - 1>(rows, panel, from, to, x, stride, sums);
    }
    float_tile<FORMAT, STREAM, R>(panel, from, to, x, stride, sums);
}

template <int FORMAT, bool STREAM>
void float_tiles(const uint8_t* panel, int from, int to, const float* x, int64_t stride, int rows, float* sums) {
    const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int tile = 0, row = 0; tile < tiles; tile++) {
        const int count = (rows - row + tiles - tile - 1) / (tiles - tile);
        const float* at = x + row * stride;
        float* out = sums + row * PANEL;
        tile_of<FORMAT, STREAM>(count, panel, from, to, at, stride, out);
        row += count;
    }
}

#if defined(__AVX512F__)
constexpr int PAIRED_ROWS = 8;

// Two panels of floats at once: each value is read once for both, since loading would otherwise take as long as
// multiplying.
template <int R>
void paired_tile(const float* one, const float* two, int count, const float* x, int64_t stride, float* sums,
                 float* others) {
    __m512 a[R], b[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        a[r] = _mm512_loadu_ps(sums + r * PANEL);
        b[r] = _mm512_loadu_ps(others + r * PANEL);
    }
    for (int k = 0; k < count; k++) {
        const __m512 first = _mm512_loadu_ps(one + k * PANEL), second = _mm512_loadu_ps(two + k * PANEL);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const __m512 value = _mm512_set1_ps(x[r * stride + k]);
            a[r] = _mm512_fmadd_ps(value, first, a[r]);
            b[r] = _mm512_fmadd_ps(value, second, b[r]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        _mm512_storeu_ps(sums + r * PANEL, a[r]);
        _mm512_storeu_ps(others + r * PANEL, b[r]);
    }
}

template <int R = PAIRED_ROWS>
void paired_tile_of(int rows, const float* one, const float* two, int count, const float* x, int64_t stride,
                    float* sums, float* others) {
    if constexpr (R > 1) {
        if (rows < R) return paired_tile_of<R - 1>(rows, one, two, count, x, stride, sums, others);
    }
    paired_tile<R>(one, two, count, x, stride, sums, others);
}
#endif

// Many rows read a panel many times: in pieces of so many inputs, which stay in the first cache, as floats.
constexpr int PIECE = 256;

// Inputs [from, to) of a panel as floats: where they are, or copied to `expanded`.
template <int FORMAT>
const float* piece(const uint8_t* panel, int from, int to, float* expanded) {
    if constexpr (FORMAT == FLOAT32) return reinterpret_cast<const float*>(panel) + int64_t(from) * PANEL;
    for (int k = from; k < to; k++) {
        __m256 a, b;
        load16<FORMAT>(panel, k, a, b);
        _mm256_store_ps(expanded + (k - from) * PANEL, a);
        _mm256_store_ps(expanded + (k - from) * PANEL + LANES, b);
    }
    return expanded;
}

#if defined(__AVX512F__)
template <int FORMAT>
void paired_product(const Matrix& m, int index, const Rows& x, int row, int rows, float* sums) {
    alignas(64) float expanded[2][FORMAT == FLOAT32 ? 1 : PIECE * PANEL];
    const float* values = x.values + row * x.stride;
    for (int from = 0; from < m.inputs; from += PIECE) {
        const int to = std::min(from + PIECE, m.inputs);
        const float* one = piece<FORMAT>(m.panel(index), from, to, expanded[0]);
        const float* two = piece<FORMAT>(m.panel(index + 1), from, to, expanded[1]);
        for (int r = 0; r < rows; r += PAIRED_ROWS) {
            const float* at = values + r * x.stride + from;
            paired_tile_of(std::min(PAIRED_ROWS, rows - r), one, two, to - from, at, x.stride, sums + r * PANEL,
                           sums + (rows + r) * PANEL);
        }
    }
}
#endif

template <int FORMAT>
void float_product(const Matrix& m, const uint8_t* panel, const Rows& x, int row, int rows, float* sums) {
    const float* values = x.values + row * x.stride;
    if (rows <= TILE_ROWS) {
        float_tiles<FORMAT, true>(panel, 0, m.inputs, values, x.stride, rows, sums);
        return;
    }
    alignas(64) float expanded[FORMAT == FLOAT32 ? 1 : PIECE * PANEL];
    for (int from = 0; from < m.inputs; from += PIECE) {
        const int to = std::min(from + PIECE, m.inputs);
        if (FORMAT == FLOAT32 || rows <= 2 * TILE_ROWS) {
            float_tiles<FORMAT, false>(panel, from, to, values, x.stride, rows, sums);
            continue;
        }
        const auto* floats = reinterpret_cast<const uint8_t*>(piece<FORMAT>(panel, from, to, expanded));
        float_tiles<FLOAT32, false>(floats, 0, to - from, values + from, x.stride, rows, sums);
    }
}

inline void prefetch_group(const uint8_t* group, int bytes) {
#pragma GCC unroll 16
    for (int i = 0; i < bytes; i += 64) prefetch(group + i);
}

inline __m256i broadcast4(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return _mm256_set1_epi32(four);
}

#if defined(__AVXVNNI__)
#define MESHNODE_DOT(acc, a, b) _mm256_dpbusd_avx_epi32(acc, a, b)
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define MESHNODE_DOT(acc, a, b) _mm256_dpbusd_epi32(acc, a, b)
#endif

template <int R>
void int8_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, float* out) {
    const int groups = m.groups();
    const __m256i ones = _mm256_set1_epi16(1);
    (void)ones;
    __m256 sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int g = 0; g < groups; g++, panel += 544) {
        if constexpr (R == 1) prefetch_group(panel, 544);
        const auto* vectors = reinterpret_cast<const __m256i*>(panel + 32);
        const int8_t* quants = x.quants + (int64_t(row) * groups + g) * GROUP;
        __m256i dots[R][2];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m256i a = _mm256_load_si256(vectors + i), b = _mm256_load_si256(vectors + 8 + i);
            const __m256i abs_a = _mm256_abs_epi8(a), abs_b = _mm256_abs_epi8(b);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const __m256i q = broadcast4(quants + int64_t(r) * groups * GROUP + i * 4);
                const __m256i qa = _mm256_sign_epi8(q, a), qb = _mm256_sign_epi8(q, b);
#ifdef MESHNODE_DOT
                dots[r][0] = MESHNODE_DOT(dots[r][0], abs_a, qa);
                dots[r][1] = MESHNODE_DOT(dots[r][1], abs_b, qb);
#else
                // Neither operand goes beyond 127 (128 for one), so no pair overflows 16 bits.
                const __m256i pa = _mm256_madd_epi16(_mm256_maddubs_epi16(abs_a, qa), ones);
                const __m256i pb = _mm256_madd_epi16(_mm256_maddubs_epi16(abs_b, qb), ones);
                dots[r][0] = _mm256_add_epi32(dots[r][0], pa);
                dots[r][1] = _mm256_add_epi32(dots[r][1], pb);
#endif
            }
        }
        const __m128i* scales = reinterpret_cast<const __m128i*>(panel);
        const __m256 low = _mm256_cvtph_ps(scales[0]), high = _mm256_cvtph_ps(scales[1]);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const __m256 scale = _mm256_broadcast_ss(x.scales + int64_t(row + r) * groups + g);
            sums[r][0] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][0]), _mm256_mul_ps(low, scale), sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][1]), _mm256_mul_ps(high, scale), sums[r][1]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        _mm256_storeu_ps(out + r * PANEL, sums[r][0]);
        _mm256_storeu_ps(out + r * PANEL + LANES, sums[r][1]);
    }
}

template <int FORMAT, int R>
void int4_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, float* out) {
    const int groups = m.groups();
    const __m256i ones = _mm256_set1_epi16(1), mask = _mm256_set1_epi8(15);
    (void)ones;
    __m256 sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int g = 0; g < groups; g++, panel += FORMAT == INT4 ? 288 : 320) {
        if constexpr (R == 1) prefetch_group(panel, FORMAT == INT4 ? 288 : 320);
        const int8_t* quants = x.quants + (int64_t(row) * groups + g) * GROUP;
        const __m128i* scales = reinterpret_cast<const __m128i*>(panel);
#pragma GCC unroll 8
        for (int half = 0; half < 2; half++) {
            const auto* vectors = reinterpret_cast<const __m256i*>(panel + quants_at(FORMAT)) + half * 4;
            __m256i dots[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int i = 0; i < 4; i++) {
                const __m256i v = _mm256_load_si256(vectors + i);
                const __m256i a = _mm256_and_si256(v, mask), b = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) {
                    const int8_t* at = quants + int64_t(r) * groups * GROUP + i * 4;
#ifdef MESHNODE_DOT
                    dots[r] = MESHNODE_DOT(dots[r], a, broadcast4(at));
                    dots[r] = MESHNODE_DOT(dots[r], b, broadcast4(at + 16));
#else
                    // Eight sums of two products up to 15 * 127 stay within 16 bits.
                    dots[r] = _mm256_add_epi16(dots[r], _mm256_maddubs_epi16(a, broadcast4(at)));
                    dots[r] = _mm256_add_epi16(dots[r], _mm256_maddubs_epi16(b, broadcast4(at + 16)));
#endif
                }
            }
            const __m256 scale = _mm256_cvtph_ps(scales[half]);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const int64_t block = int64_t(row + r) * groups + g;
#ifdef MESHNODE_DOT
                __m256i dot = dots[r];
#else
                __m256i dot = _mm256_madd_epi16(dots[r], ones);
#endif
                const __m256 factor = _mm256_broadcast_ss(x.scales + block);
                if constexpr (FORMAT == INT4) {
                    dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(8 * x.totals[block]));
                } else {
                    const __m256 minimum = _mm256_mul_ps(_mm256_cvtph_ps(scales[2 + half]), factor);
                    const __m256 total = _mm256_set1_ps(float(x.totals[block]));
                    sums[r][half] = _mm256_fmadd_ps(total, minimum, sums[r][half]);
                }
                sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, factor), sums[r][half]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        _mm256_storeu_ps(out + r * PANEL, sums[r][0]);
        _mm256_storeu_ps(out + r * PANEL + LANES, sums[r][1]);
    }
}

template <int FORMAT, int R>
void integer_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, float* out) {
    if constexpr (FORMAT == INT8) int8_tile<R>(m, panel, x, row, out);
    else int4_tile<FORMAT, R>(m, panel, x, row, out);
}

template <int FORMAT>
void integer_product(const Matrix& m, const uint8_t* panel, const Rows& x, int row, int rows, float* sums) {
    for (int r = 0; r < rows;) {
        const int count = std::min(rows - r, 4);
        float* out = sums + r * PANEL;
        switch (count) {
            case 1: integer_tile<FORMAT, 1>(m, panel, x, row + r, out); break;
            case 2: integer_tile<FORMAT, 2>(m, panel, x, row + r, out); break;
            case 3: integer_tile<FORMAT, 3>(m, panel, x, row + r, out); break;
            default: integer_tile<FORMAT, 4>(m, panel, x, row + r, out); break;
        }
        r += count;
    }
}

inline void add_bias(const Matrix& m, int index, int rows, float* sums) {
    if (m.bias == nullptr) return;
    for (int i = 0; i < rows * PANEL; i++) sums[i] += m.bias[index * PANEL + i % PANEL];
}

// sums [rows, 16] of the panel's outputs, bias included.
inline void panel_product(const Matrix& m, int index, const Rows& x, int row, int rows, float* sums) {
    const uint8_t* panel = m.panel(index);
    if (!m.integers()) std::memset(sums, 0, size_t(rows) * PANEL * 4);
    switch (m.format) {
        case FLOAT32: float_product<FLOAT32>(m, panel, x, row, rows, sums); break;
        case BFLOAT16: float_product<BFLOAT16>(m, panel, x, row, rows, sums); break;
        case FLOAT16: float_product<FLOAT16>(m, panel, x, row, rows, sums); break;
        case INT8: integer_product<INT8>(m, panel, x, row, rows, sums); break;
        case INT4: integer_product<INT4>(m, panel, x, row, rows, sums); break;
        default: integer_product<INT4_MIN>(m, panel, x, row, rows, sums); break;
    }
    add_bias(m, index, rows, sums);
}

// The same for one or two panels from `index`: sums [panels, rows, 16].
inline void panel_products(const Matrix& m, int index, int panels, const Rows& x, int row, int rows, float* sums) {
#if defined(__AVX512F__)
    if (panels == 2 && rows > 2 * TILE_ROWS && !m.integers()) {
        std::memset(sums, 0, size_t(2 * rows) * PANEL * 4);
        switch (m.format) {
            case FLOAT32: paired_product<FLOAT32>(m, index, x, row, rows, sums); break;
            case BFLOAT16: paired_product<BFLOAT16>(m, index, x, row, rows, sums); break;
            default: paired_product<FLOAT16>(m, index, x, row, rows, sums); break;
        }
        for (int panel = 0; panel < 2; panel++) add_bias(m, index + panel, rows, sums + panel * rows * PANEL);
        return;
    }
#endif
    for (int panel = 0; panel < panels; panel++) {
        panel_product(m, index + panel, x, row, rows, sums + panel * rows * PANEL);
    }
}

}  // namespace meshnode
