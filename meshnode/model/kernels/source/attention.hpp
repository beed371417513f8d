// Attention of queries over the keys and values of their session.
//
// Keys are taken in blocks of 64 that begin at multiples of 64, counted from the session's first position, with a
// running maximum. So what a position computes depends on its own position alone: not on whether it is computed by
// itself or among others, and not on where a chunk begins.
#pragma once

#include <algorithm>
#include <vector>

#include "vector.hpp"

namespace meshnode {

constexpr int BLOCK = 64;

// The keys and values of one session. Position p of block b = p / 64 lies at
//   address(b) + ((layer * layer_stride + which * kind_stride + head * head_stride) + p % 64 * head_dim) * size.
struct Cache {
    uint8_t* base;                // the first position, if blocks is null: then block b is 64 * b positions on
    uint8_t* const* blocks;       // or the address of each block
    int64_t layer_stride, kind_stride, head_stride;  // in numbers

    uint8_t* block(int index, int layer, int kind, int head, int head_dim, int size) const {
        const int64_t offset = layer * layer_stride + kind * kind_stride + head * head_stride;
        uint8_t* start = blocks ? blocks[index] : base + int64_t(index) * BLOCK * head_dim * size;
        return start + offset * size;
    }
};

// Rows of one session at consecutive positions, and some heads that share a key-value head.
struct AttentionTile {
    const Cache* cache;
    int row, rows, position, head, heads, kv_head;
};

struct AttentionShape {
    int layer, head_dim, num_heads, window, format;
    float softcap;  // 0: none
};

inline const float* as_floats(const uint8_t* from, int numbers, int format, float* scratch) {
    if (format == FLOAT32) return reinterpret_cast<const float*>(from);
    const auto* v = reinterpret_cast<const __m128i*>(from);
    for (int i = 0; i < numbers / LANES; i++) {
        const __m128i half = _mm_loadu_si128(v + i);
        _mm256_storeu_ps(scratch + i * LANES, format == FLOAT16 ? _mm256_cvtph_ps(half) : from_bfloat16(half));
    }
    return scratch;
}

inline void write_floats(uint8_t* to, const float* from, int numbers, int format) {
    if (format == FLOAT32) {
        std::memcpy(to, from, size_t(numbers) * 4);
    } else if (format == FLOAT16) {
        for (int i = 0; i < numbers; i += LANES) {
            const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), half);
        }
    } else {
        for (int i = 0; i < numbers; i++) reinterpret_cast<uint16_t*>(to)[i] = to_bfloat16(from[i]);
    }
}

// scores[j] = query . keys[j] for from <= j < to. A sum's order is that of sum() in any case.
inline void scores_of(const float* query, const float* keys, int head_dim, int from, int to, float* scores) {
    int j = from;
    for (; j + 8 <= to; j += 8) {
        __m256 parts[8];
        for (auto& part : parts) part = _mm256_setzero_ps();
        for (int d = 0; d < head_dim; d += LANES) {
            const __m256 q = _mm256_loadu_ps(query + d);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                parts[i] = _mm256_fmadd_ps(q, _mm256_loadu_ps(keys + (j + i) * head_dim + d), parts[i]);
            }
        }
        _mm256_storeu_ps(scores + j, sums(parts));
    }
    for (; j < to; j++) {
        __m256 part = _mm256_setzero_ps();
        for (int d = 0; d < head_dim; d += LANES) {
            part = _mm256_fmadd_ps(_mm256_loadu_ps(query + d), _mm256_loadu_ps(keys + j * head_dim + d), part);
        }
        scores[j] = sum(part);
    }
}

template <int VECTORS>
inline void add_values(const float* weights, const float* values, int head_dim, int from, int to, float factor,
                       float* mixed) {
    __m256 parts[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        parts[i] = _mm256_mul_ps(_mm256_loadu_ps(mixed + i * LANES), _mm256_set1_ps(factor));
    }
    for (int j = from; j < to; j++) {
        const __m256 weight = _mm256_broadcast_ss(weights + j);
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++) {
            parts[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(values + j * head_dim + i * LANES), parts[i]);
        }
    }
    for (int i = 0; i < VECTORS; i++) _mm256_storeu_ps(mixed + i * LANES, parts[i]);
}

// queries and mixed are [rows, stride], scaled and rotated; heads lie one after another.
inline void attend(const AttentionTile& tile, const AttentionShape& shape, const float* queries, int64_t stride,
                   float* mixed, int64_t mixed_stride) {
    thread_local std::vector<float> space;
    const int d = shape.head_dim, count = tile.rows * tile.heads, size = shape.format == FLOAT32 ? 4 : 2;
    space.resize(size_t(2 * BLOCK * d + 2 * count + BLOCK));
    float *key_space = space.data(), *value_space = key_space + BLOCK * d;
    float *peaks = value_space + BLOCK * d, *totals = peaks + count, *scores = totals + count;
    std::fill_n(peaks, count, -std::numeric_limits<float>::infinity());
    std::fill_n(totals, count, 0.0f);
    for (int i = 0; i < count; i++) {
        std::fill_n(mixed + (tile.row + i / tile.heads) * mixed_stride + (tile.head + i % tile.heads) * d, d, 0.0f);
    }
    const auto first_key = [&](int position) { return shape.window > 0 ? std::max(0, position - shape.window + 1) : 0; };
    const int last = tile.position + tile.rows - 1;
    for (int block = first_key(tile.position) / BLOCK; block <= last / BLOCK; block++) {
        const int start = block * BLOCK, numbers = std::min(BLOCK, last + 1 - start) * d;
        const float* keys =
            as_floats(tile.cache->block(block, shape.layer, 0, tile.kv_head, d, size), numbers, shape.format, key_space);
        const float* values =
            as_floats(tile.cache->block(block, shape.layer, 1, tile.kv_head, d, size), numbers, shape.format, value_space);
        for (int i = 0; i < count; i++) {
            const int row = tile.row + i / tile.heads, position = tile.position + i / tile.heads;
            const int from = std::max(0, first_key(position) - start), to = std::min(BLOCK, position + 1 - start);
            if (from >= to) continue;
            const int head = tile.head + i % tile.heads;
            const float* query = queries + row * stride + head * d;
            std::fill_n(scores, BLOCK, -std::numeric_limits<float>::infinity());
            scores_of(query, keys, d, from, to, scores);
            __m256 most = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
            for (int j = 0; j < BLOCK; j += LANES) {
                __m256 score = _mm256_loadu_ps(scores + j);
                if (shape.softcap > 0) {
                    const __m256 cap = _mm256_set1_ps(shape.softcap);
                    score = _mm256_mul_ps(cap, hyperbolic_tangent(_mm256_div_ps(score, cap)));
                    const int inside = j;
                    for (int l = 0; l < LANES; l++) {
                        if (inside + l < from || inside + l >= to) {
                            reinterpret_cast<float*>(&score)[l] = -std::numeric_limits<float>::infinity();
                        }
                    }
                    _mm256_storeu_ps(scores + j, score);
                }
                most = _mm256_max_ps(score, most);
            }
            const float peak = std::max(peaks[i], largest(most));
            __m256 total = _mm256_setzero_ps();
            for (int j = 0; j < BLOCK; j += LANES) {
                const __m256 weight = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(peak)));
                _mm256_storeu_ps(scores + j, weight);
                total = _mm256_add_ps(total, weight);
            }
            const float factor = first(exponential(_mm256_set1_ps(peaks[i] - peak)));
            peaks[i] = peak;
            totals[i] = std::fma(totals[i], factor, sum(total));
            float* out = mixed + row * mixed_stride + head * d;
            int at = 0;
            for (; at + 64 <= d; at += 64) add_values<8>(scores, values + at, d, from, to, factor, out + at);
            for (; at < d; at += 8) add_values<1>(scores, values + at, d, from, to, factor, out + at);
        }
    }
    for (int i = 0; i < count; i++) {
        float* out = mixed + (tile.row + i / tile.heads) * mixed_stride + (tile.head + i % tile.heads) * d;
        const __m256 total = _mm256_set1_ps(totals[i]);
        for (int j = 0; j < d; j += LANES) _mm256_storeu_ps(out + j, _mm256_div_ps(_mm256_loadu_ps(out + j), total));
    }
}

}  // namespace meshnode
