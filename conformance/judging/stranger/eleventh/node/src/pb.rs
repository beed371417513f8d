//! Protocol buffers, as much of them as is needed.

use crate::fault::{odd, on};
use bytes::Bytes;

pub enum Val {
    Num(u64),
    Len(Bytes),
    Eight(u64),
    Four,
}

pub struct Msg {
    pub fields: Vec<(u32, Val)>,
}

/// The message cannot be read.
#[derive(Debug)]
pub struct Bad(pub &'static str);

fn varint(b: &[u8], at: &mut usize) -> Result<u64, Bad> {
    let mut v = 0u64;
    for i in 0..10 {
        let Some(x) = b.get(*at) else {
            return Err(Bad("a number breaks off"));
        };
        *at += 1;
        v |= u64::from(x & 0x7f) << (7 * i).min(63);
        if x & 0x80 == 0 {
            return Ok(v);
        }
    }
    Err(Bad("a number is too long"))
}

impl Msg {
    pub fn read(b: &Bytes) -> Result<Msg, Bad> {
        let mut fields = Vec::new();
        let mut at = 0;
        while at < b.len() {
            let key = varint(b, &mut at)?;
            let no = (key >> 3) as u32;
            if no == 0 || key >> 3 > 0x1fff_ffff {
                return Err(Bad("a field has no number"));
            }
            let val = match key & 7 {
                0 => Val::Num(varint(b, &mut at)?),
                1 => {
                    let s = b.get(at..at + 8).ok_or(Bad("a double breaks off"))?;
                    at += 8;
                    Val::Eight(u64::from_le_bytes(s.try_into().unwrap()))
                }
                2 => {
                    let n = varint(b, &mut at)? as usize;
                    if n > b.len() - at {
                        return Err(Bad("a field is longer than its message"));
                    }
                    let v = b.slice(at..at + n);
                    at += n;
                    Val::Len(v)
                }
                5 => {
                    let s = b.get(at..at + 4).ok_or(Bad("a float breaks off"))?;
                    at += 4;
                    {
                        let _ = s;
                        Val::Four
                    }
                }
                _ => return Err(Bad("a field has no such type")),
            };
            if on("pb-unknown-refused") && no > 12 {
                return Err(Bad("an unknown field"));
            }
            if on("pb-order-needed") {
                if let Some((last, _)) = fields.last() {
                    if *last > no {
                        return Err(Bad("a field is out of order"));
                    }
                }
            }
            fields.push((no, val));
        }
        Ok(Msg { fields })
    }

    pub fn bytes(&self, no: u32) -> Bytes {
        let mut it = self.fields.iter().rev();
        it.find_map(|(n, v)| match v {
            Val::Len(b) if *n == no => Some(b.clone()),
            _ => None,
        })
        .unwrap_or_default()
    }

    pub fn all(&self, no: u32) -> Vec<Bytes> {
        self.fields
            .iter()
            .filter_map(|(n, v)| match v {
                Val::Len(b) if *n == no => Some(b.clone()),
                _ => None,
            })
            .collect()
    }

    pub fn text(&self, no: u32) -> Result<String, Bad> {
        let b = self.bytes(no);
        if on("pb-text-lossy-ascii") {
            return Ok(b.iter().map(|c| *c as char).collect());
        }
        String::from_utf8(b.to_vec()).map_err(|_| Bad("a text is no UTF-8"))
    }

    pub fn num(&self, no: u32) -> i64 {
        self.fields
            .iter()
            .rev()
            .find_map(|(n, v)| match v {
                Val::Num(x) if *n == no => Some(*x as i64),
                _ => None,
            })
            .unwrap_or(0)
    }

    pub fn int32(&self, no: u32) -> i64 {
        let v = self.num(no);
        if on("pb-int32-zigzag") {
            return (v >> 1) ^ -(v & 1);
        }
        if on("pb-int32-u32") {
            return i64::from(v as u32);
        }
        i64::from(v as i32)
    }

    pub fn flag(&self, no: u32) -> bool {
        self.num(no) != 0
    }

    pub fn nums(&self, no: u32) -> Result<Vec<i64>, Bad> {
        let mut out = Vec::new();
        for (n, v) in self.fields.iter().filter(|f| f.0 == no) {
            let _ = n;
            match v {
                Val::Num(x) if !on("pb-packed-only") => out.push(*x as i64),
                Val::Len(b) if !on("pb-unpacked-only") => {
                    let mut at = 0;
                    while at < b.len() {
                        out.push(varint(b, &mut at)? as i64);
                    }
                }
                _ => {}
            }
        }
        Ok(out)
    }

    pub fn double(&self, no: u32) -> f64 {
        self.fields
            .iter()
            .rev()
            .find_map(|(n, v)| match v {
                Val::Eight(x) if *n == no => Some(f64::from_bits(*x)),
                _ => None,
            })
            .unwrap_or(0.0)
    }

    /// A message within this one; its parts are joined.
    pub fn inner(&self, no: u32) -> Result<Msg, Bad> {
        let parts = self.all(no);
        let whole: Bytes = parts.concat().into();
        Msg::read(&whole)
    }
}

#[derive(Default, Clone)]
pub struct Out(pub Vec<u8>);

impl Out {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    fn key(&mut self, no: u32, kind: u64) {
        self.varint(u64::from(no) << 3 | kind);
    }

    pub fn num(mut self, no: u32, v: i64) -> Out {
        if v != 0 || odd("pb-defaults-written") {
            self.key(no, 0);
            self.varint(v as u64);
        }
        self
    }

    pub fn flag(self, no: u32, v: bool) -> Out {
        self.num(no, i64::from(v))
    }

    pub fn double(mut self, no: u32, v: f64) -> Out {
        if v != 0.0 || odd("pb-defaults-written") {
            if on("loss-float32") {
                self.key(no, 5);
                self.0.extend_from_slice(&(v as f32).to_le_bytes());
                return self;
            }
            self.key(no, 1);
            self.0.extend_from_slice(&v.to_le_bytes());
        }
        self
    }

    pub fn bytes(self, no: u32, v: &[u8]) -> Out {
        if v.is_empty() && !odd("pb-defaults-written") {
            return self;
        }
        self.part(no, v)
    }

    pub fn text(self, no: u32, v: &str) -> Out {
        self.bytes(no, v.as_bytes())
    }

    /// An entry of a repeated field, or a message; empty ones too.
    pub fn part(mut self, no: u32, v: &[u8]) -> Out {
        self.key(no, 2);
        self.varint(v.len() as u64);
        self.0.extend_from_slice(v);
        self
    }

    pub fn nums(mut self, no: u32, list: &[i64]) -> Out {
        if odd("pb-unpacked") {
            for v in list {
                self.key(no, 0);
                self.varint(*v as u64);
            }
            return self;
        }
        if list.is_empty() {
            return self;
        }
        let mut inner = Out::default();
        for v in list {
            inner.varint(*v as u64);
        }
        self.part(no, &inner.0)
    }
}
