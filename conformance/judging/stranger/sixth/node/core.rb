# encoding: utf-8
require 'json'
require 'digest'
require 'socket'
require 'time'
require 'date'
require 'base64'
require 'securerandom'

$fault = nil
$peculiar = nil
def on?(id) = $fault == id
def pec?(id) = $peculiar == id

def mono = Process.clock_gettime(Process::CLOCK_MONOTONIC)
def sha(s) = Digest::SHA256.hexdigest(s)

# LZ4 frames: written with stored blocks, read in full.
module LZ4
  module_function
  P1 = 2654435761; P2 = 2246822519; P3 = 3266489917; P4 = 668265263; P5 = 374761393; M = 0xffffffff
  def rotl(x, r) = ((x << r) | (x >> (32 - r))) & M
  def xxh32(s)
    n = s.bytesize; i = 0
    if n >= 16
      v = [(P1 + P2) & M, P2, 0, (-P1) & M]
      while i + 16 <= n
        4.times { |k| v[k] = (rotl((v[k] + s.byteslice(i + 4 * k, 4).unpack1('V') * P2) & M, 13) * P1) & M }
        i += 16
      end
      h = (rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)) & M
    else
      h = P5
    end
    h = (h + n) & M
    while i + 4 <= n
      h = (rotl((h + s.byteslice(i, 4).unpack1('V') * P3) & M, 17) * P4) & M
      i += 4
    end
    while i < n
      h = (rotl((h + s.getbyte(i) * P5) & M, 11) * P1) & M
      i += 1
    end
    h ^= h >> 15; h = (h * P2) & M; h ^= h >> 13; h = (h * P3) & M
    h ^ (h >> 16)
  end

  def frame(data)
    desc = [0x60, 0x70].pack('CC')
    hc = (xxh32(desc) >> 8) & 0xff
    out = [0x184D2204].pack('V') + desc + [hc].pack('C')
    pos = 0
    while pos < data.bytesize
      part = data.byteslice(pos, 4 << 20)
      out << [part.bytesize | 0x80000000].pack('V') << part.b
      pos += part.bytesize
    end
    out << [0].pack('V')
  end

  class Bad < StandardError; end

  def unframe(s, max = 64 << 20)
    s = s.b
    raise Bad, 'no LZ4 frame' if s.bytesize < 11 || s.unpack1('V') != 0x184D2204
    flg = s.getbyte(4); pos = 6
    raise Bad, 'unknown frame version' unless flg >> 6 == 1
    pos += 8 if flg & 8 != 0
    pos += 4 if flg & 1 != 0
    raise Bad, 'cut frame' if pos >= s.bytesize
    raise Bad, 'header checksum' unless s.getbyte(pos) == ((xxh32(s.byteslice(4, pos - 4)) >> 8) & 0xff)
    pos += 1
    out = String.new(encoding: 'BINARY')
    loop do
      raise Bad, 'cut frame' if pos + 4 > s.bytesize
      n = s.byteslice(pos, 4).unpack1('V'); pos += 4
      break if n == 0
      stored = n & 0x80000000 != 0
      n &= 0x7fffffff
      raise Bad, 'cut block' if pos + n > s.bytesize
      part = s.byteslice(pos, n); pos += n
      pos += 4 if flg & 16 != 0
      stored ? out << part : block(part, out, max)
      raise Bad, 'too large' if out.bytesize > max
    end
    out
  end

  def block(b, out, max)
    i = 0; n = b.bytesize
    while i < n
      t = b.getbyte(i); i += 1
      len = t >> 4
      if len == 15
        loop { x = b.getbyte(i) or raise Bad, 'cut'; i += 1; len += x; break if x != 255 }
      end
      raise Bad, 'cut literal' if i + len > n
      out << b.byteslice(i, len); i += len
      break if i >= n
      raise Bad, 'cut offset' if i + 2 > n
      off = b.getbyte(i) | b.getbyte(i + 1) << 8; i += 2
      m = (t & 15)
      if m == 15
        loop { x = b.getbyte(i) or raise Bad, 'cut'; i += 1; m += x; break if x != 255 }
      end
      m += 4
      start = out.bytesize - off
      raise Bad, 'bad offset' if off == 0 || start < 0
      raise Bad, 'too large' if out.bytesize + m > max
      if off >= m
        out << out.byteslice(start, m)
      else
        pat = out.byteslice(start, off)
        out << (pat * (m / off + 1)).byteslice(0, m)
      end
    end
  end
end
