//! LZ4 frames: written with stored or simple blocks, read in full.

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const P: [u32; 5] = [
    2_654_435_761,
    2_246_822_519,
    3_266_489_917,
    668_265_263,
    374_761_393,
];

fn xxh32(d: &[u8]) -> u32 {
    let mut at = 0;
    let word = |i: usize| u32::from_le_bytes(d[i..i + 4].try_into().unwrap());
    let mut h = if d.len() >= 16 {
        let mut v = [P[0].wrapping_add(P[1]), P[1], 0, 0u32.wrapping_sub(P[0])];
        while at + 16 <= d.len() {
            for (k, x) in v.iter_mut().enumerate() {
                *x = x
                    .wrapping_add(word(at + 4 * k).wrapping_mul(P[1]))
                    .rotate_left(13)
                    .wrapping_mul(P[0]);
            }
            at += 16;
        }
        v[0].rotate_left(1)
            .wrapping_add(v[1].rotate_left(7))
            .wrapping_add(v[2].rotate_left(12))
            .wrapping_add(v[3].rotate_left(18))
    } else {
        P[4]
    };
    h = h.wrapping_add(d.len() as u32);
    while at + 4 <= d.len() {
        h = h
            .wrapping_add(word(at).wrapping_mul(P[2]))
            .rotate_left(17)
            .wrapping_mul(P[3]);
        at += 4;
    }
    for b in &d[at..] {
        h = h
            .wrapping_add(u32::from(*b).wrapping_mul(P[4]))
            .rotate_left(11)
            .wrapping_mul(P[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P[2]);
    h ^ (h >> 16)
}

/// A frame whose blocks are stored as they are, with a checksum of the content.
pub fn frame(data: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let head = [0x64u8, 0x60];
    out.extend_from_slice(&head);
    out.push((xxh32(&head) >> 8) as u8);
    for block in data.chunks(1 << 20) {
        out.extend_from_slice(&(block.len() as u32 | 0x8000_0000).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&xxh32(data).to_le_bytes());
    out
}

fn block(src: &[u8], out: &mut Vec<u8>, cap: usize) -> Option<()> {
    let mut at = 0;
    loop {
        let token = *src.get(at)?;
        at += 1;
        let long = |n: usize, at: &mut usize| -> Option<usize> {
            let mut n = n;
            if n == 15 {
                loop {
                    let b = *src.get(*at)?;
                    *at += 1;
                    n += usize::from(b);
                    if b != 255 {
                        break;
                    }
                }
            }
            Some(n)
        };
        let lit = long(usize::from(token >> 4), &mut at)?;
        out.extend_from_slice(src.get(at..at.checked_add(lit)?)?);
        at += lit;
        if at == src.len() {
            return Some(());
        }
        let back = usize::from(u16::from_le_bytes(src.get(at..at + 2)?.try_into().ok()?));
        at += 2;
        let len = long(usize::from(token & 15), &mut at)? + 4;
        if back == 0 || back > out.len() || out.len() + len > cap {
            return None;
        }
        let from = out.len() - back;
        for i in 0..len {
            out.push(out[from + i]);
        }
    }
}

/// The content of a frame; None if it is none or is larger than cap.
pub fn unframe(d: &[u8], cap: usize) -> Option<Vec<u8>> {
    if d.get(..4)? != MAGIC {
        return None;
    }
    let flags = *d.get(4)?;
    if flags >> 6 != 1 {
        return None;
    }
    let mut at = 6;
    if flags & 8 != 0 {
        at += 8;
    }
    if flags & 1 != 0 {
        at += 4;
    }
    at += 1;
    let mut out = Vec::new();
    loop {
        let n = u32::from_le_bytes(d.get(at..at + 4)?.try_into().ok()?);
        at += 4;
        if n == 0 {
            break;
        }
        let len = (n & 0x7fff_ffff) as usize;
        let part = d.get(at..at.checked_add(len)?)?;
        at += len;
        if n >> 31 == 1 {
            out.extend_from_slice(part);
        } else {
            block(part, &mut out, cap)?;
        }
        if flags & 0x10 != 0 {
            at += 4;
        }
        if out.len() > cap {
            return None;
        }
    }
    if flags & 4 != 0 {
        let sum = u32::from_le_bytes(d.get(at..at + 4)?.try_into().ok()?);
        if sum != xxh32(&out) {
            return None;
        }
    }
    Some(out)
}
