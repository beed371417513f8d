// The weights of blocks of GGUF files as floats, as llama.cpp defines these types. A product of a scale and a quant
// has at most 25 significant bits, so each weight is rounded once, and its bits depend on no order of operations.
#pragma once

#include "vector.hpp"

namespace meshnode {

enum class BlockKind : int32_t { Q8_0, Q4_0, Q4_1, Q4_K, Q6_K };

inline float half_at(const uint8_t* at) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return _cvtsh_ss(bits);
}

// Bytes with two quants each: the lower halves come first.
inline void nibbles(const uint8_t* from, int count, float low_scale, float low_shift, float high_scale, float high_shift,
                    float* to) {
    for (int i = 0; i < count; i++) to[i] = low_scale * float(from[i] & 15) + low_shift;
    for (int i = 0; i < count; i++) to[count + i] = high_scale * float(from[i] >> 4) + high_shift;
}

inline void floats_of_q8_0(const uint8_t* block, float* to) {
    const float scale = half_at(block);
    const int8_t* quants = reinterpret_cast<const int8_t*>(block + 2);
    for (int i = 0; i < 32; i++) to[i] = scale * float(quants[i]);
}

inline void floats_of_q4_0(const uint8_t* block, float* to) {
    const float scale = half_at(block);
    for (int i = 0; i < 16; i++) to[i] = scale * float(int(block[2 + i] & 15) - 8);
    for (int i = 0; i < 16; i++) to[16 + i] = scale * float(int(block[2 + i] >> 4) - 8);
}

inline void floats_of_q4_1(const uint8_t* block, float* to) {
    const float scale = half_at(block), minimum = half_at(block + 2);
    nibbles(block + 4, 16, scale, minimum, scale, minimum, to);
}

// Eight groups of 32 in pairs, whose scales and minima have six bits each: 12 bytes for all of them.
inline void floats_of_q4_k(const uint8_t* block, float* to) {
    const float scale = half_at(block), minimum = half_at(block + 2);
    const uint8_t* packed = block + 4;
    float scales[8], shifts[8];
    for (int i = 0; i < 4; i++) {
        scales[i] = scale * float(packed[i] & 63);
        shifts[i] = -(minimum * float(packed[4 + i] & 63));
        scales[4 + i] = scale * float((packed[8 + i] & 15) | (packed[i] >> 6 << 4));
        shifts[4 + i] = -(minimum * float((packed[8 + i] >> 4) | (packed[4 + i] >> 6 << 4)));
    }
    for (int pair = 0; pair < 4; pair++) {
        nibbles(block + 16 + 32 * pair, 32, scales[2 * pair], shifts[2 * pair], scales[2 * pair + 1],
                shifts[2 * pair + 1], to + 64 * pair);
    }
}

// Sixteen groups of 16; of each quant four bits are in `low` and two in `high`.
inline void floats_of_q6_k(const uint8_t* block, float* to) {
    const int8_t* groups = reinterpret_cast<const int8_t*>(block + 192);
    const float scale = half_at(block + 208);
    for (int part = 0; part < 8; part++) {  // of 32
        const int side = part / 4, at = part % 4;
        const uint8_t *low = block + 64 * side + 32 * (at % 2), *high = block + 128 + 32 * side;
        for (int i = 0; i < 32; i++) {
            const int quant = ((low[i] >> (4 * (at / 2))) & 15) | (((high[i] >> (2 * at)) & 3) << 4);
            to[32 * part + i] = scale * float(groups[2 * part + i / 16]) * float(quant - 32);
        }
    }
}

inline void floats_of_blocks(BlockKind kind, const uint8_t* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i++) {
        switch (kind) {
            case BlockKind::Q8_0: floats_of_q8_0(from + 34 * i, to + 32 * i); break;
            case BlockKind::Q4_0: floats_of_q4_0(from + 18 * i, to + 32 * i); break;
            case BlockKind::Q4_1: floats_of_q4_1(from + 20 * i, to + 32 * i); break;
            case BlockKind::Q4_K: floats_of_q4_k(from + 144 * i, to + 256 * i); break;
            case BlockKind::Q6_K: floats_of_q6_k(from + 210 * i, to + 256 * i); break;
        }
    }
}

inline bool finite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

// The numbers and quants of blocks of 32 apart: quants [count, 32], scales [count], minima [count] of Q4_1. False,
// and no more is written, if some block is not bit for bit what quantising its weights would make: one whose quants
// do not reach the ends of their range, or whose numbers are not finite; gguf_blocks.py says why.
inline bool split_blocks(BlockKind kind, const uint8_t* from, int64_t count, int8_t* quants, uint16_t* scales,
                         uint16_t* minima) {
    constexpr float FAR = 4096;
    const int head = kind == BlockKind::Q4_1 ? 4 : 2, size = head + (kind == BlockKind::Q8_0 ? 32 : 16);
    for (int64_t i = 0; i < count; i++, from += size, quants += 32) {
        std::memcpy(scales + i, from, 2);
        const float scale = half_at(from);
        if (!finite(scales[i]) || scale == 0) return false;
        if (kind == BlockKind::Q8_0) {
            std::memcpy(quants, from + head, 32);
        } else {
            for (int j = 0; j < 16; j++) quants[j] = int8_t(from[head + j] & 15);
            for (int j = 0; j < 16; j++) quants[16 + j] = int8_t(from[head + j] >> 4);
        }
        int8_t low = quants[0], high = quants[0];
        for (int j = 1; j < 32; j++) {
            low = quants[j] < low ? quants[j] : low;
            high = quants[j] > high ? quants[j] : high;
        }
        bool whole = low == 0;
        if (kind == BlockKind::Q8_0) whole = scale > 0 && low >= -127 && (low == -127 || high == 127);
        if (kind == BlockKind::Q4_1) {
            std::memcpy(minima + i, from + 2, 2);
            whole = whole && high == 15 && finite(minima[i]) && std::fabs(half_at(from + 2)) <= FAR * scale;
        }
        if (!whole) return false;
    }
    return true;
}

}  // namespace meshnode
