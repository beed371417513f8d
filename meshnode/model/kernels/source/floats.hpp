// Products of rows with panels of floats: input after input, with fused multiply-adds.
#pragma once

#include "rows.hpp"

namespace meshnode {

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
    // One instruction besides the loading: each lane of the first half takes the lower bytes of its four, the others the
    // higher ones; the rest are zeros.
    const __m512i first = _mm512_set4_epi32(0x0d0c8080, 0x09088080, 0x05048080, 0x01008080);
    const __m512i second = _mm512_set4_epi32(0x0f0e8080, 0x0b0a8080, 0x07068080, 0x03028080);
    const __m512i halves = _mm512_shuffle_i64x2(first, second, 0x44);
    return _mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_broadcast_i64x4(v), halves));
}

constexpr int TILE_ROWS = 12;
#else
constexpr int TILE_ROWS = 6;
#endif

// Bytes that a panel has for each input.
template <int FORMAT>
constexpr int64_t INPUT_BYTES = PANEL * (FORMAT == FLOAT32 ? 4 : 2);

// Adds `count` inputs of R rows to sums [R, 16]. A lane is an output, so its sum has the same bits at any width.
template <int FORMAT, int R>
void float_tile(const uint8_t* panel, int count, const float* x, int64_t stride, Ahead ahead, float* sums) {
#if defined(__AVX512F__)
    __m512 all[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) all[r] = _mm512_loadu_ps(sums + r * PANEL);
    for (int k = 0; k < count; k++) {
        prefetch(ahead.at + k * ahead.step);
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
    for (int k = 0; k < count; k++) {
        prefetch(ahead.at + k * ahead.step);
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

template <int FORMAT, int R = TILE_ROWS>
void tile_of(int rows, const uint8_t* panel, int count, const float* x, int64_t stride, Ahead ahead, float* sums) {
    if constexpr (R > 1) {
        if (rows < R) return tile_of<FORMAT, R - 1>(rows, panel, count, x, stride, ahead, sums);
    }
    float_tile<FORMAT, R>(panel, count, x, stride, ahead, sums);
}

// `memory` is where the `bytes` of these inputs came from; behind them lies what is fetched meanwhile.
template <int FORMAT>
void float_tiles(const uint8_t* panel, int count, const float* x, int64_t stride, int rows, const uint8_t* memory,
                 int64_t bytes, float* sums) {
    const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int tile = 0, row = 0; tile < tiles; tile++) {
        const int some = (rows - row + tiles - tile - 1) / (tiles - tile);
        const Ahead ahead = ahead_of(memory, bytes, count, tile, tiles);
        tile_of<FORMAT>(some, panel, count, x + row * stride, stride, ahead, sums + row * PANEL);
        row += some;
    }
}

#if defined(__AVX512F__)
constexpr int PAIRED_ROWS = 8;

// Two panels of floats at once: each value is read once for both, since loading would otherwise take as long as
// multiplying.
template <int FORMAT, int R>
void paired_tile(const uint8_t* one, const uint8_t* two, int count, const float* x, int64_t stride, Ahead ahead,
                 Ahead other, float* sums, float* others) {
    __m512 a[R], b[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        a[r] = _mm512_loadu_ps(sums + r * PANEL);
        b[r] = _mm512_loadu_ps(others + r * PANEL);
    }
    for (int k = 0; k < count; k++) {
        prefetch(ahead.at + k * ahead.step);
        prefetch(other.at + k * other.step);
        const __m512 first = load16<FORMAT>(one, k), second = load16<FORMAT>(two, k);
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

template <int FORMAT, int R = PAIRED_ROWS>
void paired_tile_of(int rows, const uint8_t* one, const uint8_t* two, int count, const float* x, int64_t stride,
                    Ahead ahead, Ahead other, float* sums, float* others) {
    if constexpr (R > 1) {
        if (rows < R) {
            return paired_tile_of<FORMAT, R - 1>(rows, one, two, count, x, stride, ahead, other, sums, others);
        }
    }
    paired_tile<FORMAT, R>(one, two, count, x, stride, ahead, other, sums, others);
}
#endif

// Many rows read a panel many times: in pieces of so many inputs, which stay in the first cache, as floats.
constexpr int PIECE = 128;

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
    const float* values = x.values + row * x.stride;
    const int tiles = (rows + PAIRED_ROWS - 1) / PAIRED_ROWS;
    for (int from = 0; from < m.inputs; from += PIECE) {
        const int to = std::min(from + PIECE, m.inputs), count = to - from;
        const uint8_t* one = m.panel(index) + from * INPUT_BYTES<FORMAT>;
        const uint8_t* two = m.panel(index + 1) + from * INPUT_BYTES<FORMAT>;
        // Behind the second panel lie the next two.
        const int64_t bytes = count * INPUT_BYTES<FORMAT>, last = to == m.inputs ? m.panel_bytes() : 0;
        const uint8_t* at = m.panel(index) + from * INPUT_BYTES<FORMAT> + last;
        for (int tile = 0, r = 0; tile < tiles; tile++, r += PAIRED_ROWS) {
            const Ahead ahead = ahead_of(at, bytes, count, tile, tiles);
            const Ahead other = ahead_of(at + m.panel_bytes(), bytes, count, tile, tiles);
            paired_tile_of<FORMAT>(std::min(PAIRED_ROWS, rows - r), one, two, count, values + r * x.stride + from,
                                   x.stride, ahead, other, sums + r * PANEL, sums + (rows + r) * PANEL);
        }
    }
}
#endif

template <int FORMAT>
void float_product(const Matrix& m, const uint8_t* panel, const Rows& x, int row, int rows, float* sums) {
    const float* values = x.values + row * x.stride;
    if (rows <= TILE_ROWS) {
        float_tiles<FORMAT>(panel, m.inputs, values, x.stride, rows, panel, m.panel_bytes(), sums);
        return;
    }
    alignas(64) float expanded[FORMAT == FLOAT32 ? 1 : PIECE * PANEL];
    for (int from = 0; from < m.inputs; from += PIECE) {
        const int to = std::min(from + PIECE, m.inputs), count = to - from;
        const uint8_t* memory = panel + from * INPUT_BYTES<FORMAT>;
        const int64_t bytes = count * INPUT_BYTES<FORMAT>;
        if (FORMAT == FLOAT32 || rows <= 2 * TILE_ROWS) {
            float_tiles<FORMAT>(memory, count, values + from, x.stride, rows, memory, bytes, sums);
            continue;
        }
        const auto* floats = reinterpret_cast<const uint8_t*>(piece<FORMAT>(panel, from, to, expanded));
        float_tiles<FLOAT32>(floats, count, values + from, x.stride, rows, memory, bytes, sums);
    }
}

}  // namespace meshnode
