// Products of rows, rounded to int8 in groups of 32 inputs, with panels of integers: the products of a group are added
// exactly, and group is added after group.
#pragma once

#include "rows.hpp"

namespace meshnode {

inline __m256i broadcast4(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return _mm256_set1_epi32(four);
}

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
constexpr int INTEGER_ROWS = 12;

inline __m512i broadcast4_wide(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return _mm512_set1_epi32(four);
}

// Eight outputs of the first half of a panel, and the eight of the second.
inline __m512i both(const __m256i* first, const __m256i* second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(first)), _mm256_load_si256(second), 1);
}

// The products of one group of R rows with what is added to each weight, since the instruction takes them unsigned.
template <int FORMAT, int R>
inline void dots_of(const uint8_t* group, const int8_t* quants, int64_t stride, __m512i (&dots)[R]) {
    const auto* vectors = reinterpret_cast<const __m256i*>(group + quants_at(FORMAT));
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) dots[r] = _mm512_setzero_si512();
    if constexpr (FORMAT == INT8) {
        const __m512i sign = _mm512_set1_epi8(char(0x80));
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m512i weights = _mm512_xor_si512(both(vectors + i, vectors + 8 + i), sign);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                dots[r] = _mm512_dpbusd_epi32(dots[r], weights, broadcast4_wide(quants + r * stride + i * 4));
            }
        }
    } else {
        const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i v = both(vectors + i, vectors + 4 + i);
            const __m512i low = _mm512_and_si512(v, mask), high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const int8_t* at = quants + r * stride + i * 4;
                dots[r] = _mm512_dpbusd_epi32(dots[r], low, broadcast4_wide(at));
                dots[r] = _mm512_dpbusd_epi32(dots[r], high, broadcast4_wide(at + 16));
            }
        }
    }
}

template <int FORMAT, int R>
void integer_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, Ahead ahead, float* out) {
    constexpr int ADDED_BITS = FORMAT == INT8 ? 7 : 3;  // 128 or 8 to each weight
    const int groups = m.groups();
    __m512 sums[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sums[r] = _mm512_setzero_ps();
    for (int g = 0; g < groups; g++, panel += m.group_bytes()) {
        ahead.fetch(g);
        __m512i dots[R];
        dots_of<FORMAT, R>(panel, x.quants + row * x.quants_stride + g * GROUP, x.quants_stride, dots);
        const auto* numbers = reinterpret_cast<const __m256i*>(panel);
        const __m512 scale = _mm512_cvtph_ps(_mm256_load_si256(numbers));
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const int64_t block = int64_t(row + r) * groups + g;
            const __m512 factor = _mm512_set1_ps(x.scales[block]);
            if constexpr (FORMAT == INT4_MIN) {
                const __m512 minimum = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_load_si256(numbers + 1)), factor);
                sums[r] = _mm512_fmadd_ps(_mm512_set1_ps(float(x.totals[block])), minimum, sums[r]);
            } else {
                const __m512i total = _mm512_slli_epi32(_mm512_set1_epi32(x.totals[block]), ADDED_BITS);
                dots[r] = _mm512_sub_epi32(dots[r], total);
            }
            sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), _mm512_mul_ps(scale, factor), sums[r]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) _mm512_storeu_ps(out + r * PANEL, sums[r]);
}
#else
constexpr int INTEGER_ROWS = 4;

#if defined(__AVXVNNI__)
#define MESHNODE_DOT(acc, a, b) _mm256_dpbusd_avx_epi32(acc, a, b)
#endif

template <int R>
void int8_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, Ahead ahead, float* out) {
    const int groups = m.groups();
    const __m256i ones = _mm256_set1_epi16(1);
    (void)ones;
    __m256 sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int g = 0; g < groups; g++, panel += 544) {
        ahead.fetch(g);
        const auto* vectors = reinterpret_cast<const __m256i*>(panel + 32);
        const int8_t* quants = x.quants + row * x.quants_stride + g * GROUP;
        __m256i dots[R][2];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m256i a = _mm256_load_si256(vectors + i), b = _mm256_load_si256(vectors + 8 + i);
            const __m256i abs_a = _mm256_abs_epi8(a), abs_b = _mm256_abs_epi8(b);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const __m256i q = broadcast4(quants + r * x.quants_stride + i * 4);
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
void int4_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, Ahead ahead, float* out) {
    const int groups = m.groups();
    const __m256i ones = _mm256_set1_epi16(1), mask = _mm256_set1_epi8(15);
    (void)ones;
    __m256 sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int g = 0; g < groups; g++, panel += FORMAT == INT4 ? 288 : 320) {
        ahead.fetch(g);
        const int8_t* quants = x.quants + row * x.quants_stride + g * GROUP;
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
                    const int8_t* at = quants + r * x.quants_stride + i * 4;
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
void integer_tile(const Matrix& m, const uint8_t* panel, const Rows& x, int row, Ahead ahead, float* out) {
    if constexpr (FORMAT == INT8) int8_tile<R>(m, panel, x, row, ahead, out);
    else int4_tile<FORMAT, R>(m, panel, x, row, ahead, out);
}
#endif

template <int FORMAT, int R = INTEGER_ROWS>
void integer_tile_of(int rows, const Matrix& m, const uint8_t* panel, const Rows& x, int row, Ahead ahead,
                     float* out) {
    if constexpr (R > 1) {
        if (rows < R) return integer_tile_of<FORMAT, R - 1>(rows, m, panel, x, row, ahead, out);
    }
    integer_tile<FORMAT, R>(m, panel, x, row, ahead, out);
}

template <int FORMAT>
void integer_product(const Matrix& m, const uint8_t* panel, const Rows& x, int row, int rows, float* sums) {
    const int tiles = (rows + INTEGER_ROWS - 1) / INTEGER_ROWS;
    for (int tile = 0, r = 0; tile < tiles; tile++) {
        const int count = (rows - r + tiles - tile - 1) / (tiles - tile);
        const Ahead ahead = ahead_of(panel, m.panel_bytes(), m.groups(), tile, tiles);
        integer_tile_of<FORMAT>(count, m, panel, x, row + r, ahead, sums + r * PANEL);
        r += count;
    }
}

}  // namespace meshnode
