module base;
public import std.stdio, std.string, std.conv, std.algorithm, std.array, std.datetime, std.math, std.random;
public import core.thread, core.sync.mutex, core.sync.condition, core.atomic;
import std.digest.sha, std.digest : toHexString, LetterCase;
__gshared string FA, PE;
bool f(string id) { return FA.length != 0 && FA == id; }
bool fp(string pre) { return FA.length != 0 && FA.startsWith(pre); }
bool p(string id) { return PE.length != 0 && PE == id; }
__gshared Mutex big; __gshared int PORT = 8000; __gshared MonoTime startT; __gshared SysTime startWall;
alias ub = const(ubyte)[];
ub B(string s) { return cast(ub) s; }
string S(ub s) { return cast(string) s.idup; }
string hex(ub b) { static immutable d = "0123456789abcdef"; char[] r; r.length = b.length*2; foreach (i, x; b) { r[2*i]=d[x>>4]; r[2*i+1]=d[x&15]; } return cast(string) r; }
bool isHex(string s) { foreach (c; s) if (!((c>='0'&&c<='9')||(c>='a'&&c<='f')||(c>='A'&&c<='F'))) return false; return true; }
ubyte[] unhex(string s) { ubyte[] r; int v(char c){ return c<='9'?c-'0':(c|32)-'a'+10; } for (size_t i=0;i+1<s.length;i+=2) r ~= cast(ubyte)(v(s[i])*16+v(s[i+1])); return r; }
string sha(string s) { auto h = sha256Of(cast(ub) s); return hex(h[]); }
ubyte[] sha1b(string s) { auto h = sha1Of(cast(ub) s); return h[].dup; }
ulong hash64(string s) { auto h = sha256Of(cast(ub) s); ulong r; foreach (i; 0..8) r = r<<8|h[i]; return r; }
SysTime now() { return Clock.currTime(UTC()); }
string ts(SysTime t) { t = t.toUTC(); return format("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.year, cast(int)t.month, t.day, t.hour, t.minute, t.second, t.fracSecs.total!"msecs"); }
string dt(SysTime t) { t = t.toUTC(); return format("%04d-%02d-%02d", t.year, cast(int)t.month, t.day); }
double msSince(MonoTime t) { return (MonoTime.currTime - t).total!"usecs" / 1000.0; }
double rnd3(double x) { return round(x*1000)/1000; }
// ---------- JSON
enum T { nul, bol, num, flt, str, arr, obj }
final class J {
  T t; bool b; long i; double d = 0; string s; J[] a; string[] k;
  static J N() { return new J; }
  static J O() { auto j = new J; j.t = T.obj; return j; }
  static J A(J[] x = null) { auto j = new J; j.t = T.arr; j.a = x; return j; }
  static J raw(string r) { auto j = new J; j.t = T.flt; j.s = r; j.d = r.to!double; return j; }
  J dup() { auto j = new J; j.t=t; j.b=b; j.i=i; j.d=d; j.s=s; j.k=k.dup; foreach (x; a) j.a ~= x.dup; return j; }
  J opIndex(string key) { if (t != T.obj) return null; foreach_reverse (n, x; k) if (x == key) return a[n]; return null; }
  bool has(string key) { return this[key] !is null; }
  J opIndexAssign(J v, string key) { foreach (n, x; k) if (x == key) { a[n] = v; return v; } k ~= key; a ~= v; return v; }
  void opIndexAssign(X)(X v, string key) if (!is(X == J)) { this[key] = j(v); }
  void del(string key) { foreach (n, x; k) if (x == key) { k = k[0..n]~k[n+1..$]; a = a[0..n]~a[n+1..$]; return; } }
  J set(X)(string key, X v) { this[key] = v; return this; }
  string str(string key, string def = "") { auto x = this[key]; return x && x.t == T.str ? x.s : def; }
  long lng(string key, long def = 0) { auto x = this[key]; return x && x.t == T.num ? x.i : x && x.t == T.flt ? cast(long) x.d : def; }
  double dbl(string key, double def = 0) { auto x = this[key]; return x && x.t == T.num ? x.i : x && x.t == T.flt ? x.d : def; }
  bool bl(string key) { auto x = this[key]; return x && x.t == T.bol && x.b; }
  J[] arr(string key) { auto x = this[key]; return x && x.t == T.arr ? x.a : null; }
  bool isNum() { return t == T.num || t == T.flt; }
  bool integral(out long v) { if (t == T.num) { v = i; return true; } if (t == T.flt && isFinite(d) && d == floor(d) && fabs(d) < 9e15) { v = cast(long) d; return true; } return false; }
  override string toString() { auto ap = appender!string; w(ap); return ap.data; }
  void w(A)(ref A o) {
    final switch (t) {
      case T.nul: o.put("null"); break; case T.bol: o.put(b ? "true" : "false"); break;
      case T.num: o.put(i.to!string); break;
      case T.flt: o.put(s.length ? s : dstr(d)); break;
      case T.str: ws(o, s); break;
      case T.arr: o.put('['); foreach (n, x; a) { if (n) o.put(','); x.w(o); } o.put(']'); break;
      case T.obj: o.put('{'); foreach (n, x; a) { if (n) o.put(','); ws(o, k[n]); o.put(':'); x.w(o); } o.put('}'); break;
    }
  }
  static void ws(A)(ref A o, string s) {
    o.put('"');
    bool asc = p("p-ascii");
    if (asc) { try { foreach (dchar c; s) { if (c < 128) w1(o, cast(char) c); else if (c < 0x10000) o.put(format("\\u%04x", cast(uint) c)); else { uint v = c - 0x10000; o.put(format("\\u%04x\\u%04x", 0xd800 + (v >> 10), 0xdc00 + (v & 0x3ff))); } } } catch (Exception) {} }
    else if (f("x-json-latin")) { foreach (dchar c; s) { if (c < 128) w1(o, cast(char) c); else if (c < 256) o.put(cast(char) c); else o.put('?'); } }
    else foreach (char c; s) w1(o, c);
    o.put('"');
  }
  static void w1(A)(ref A o, char c) {
    switch (c) { case '"': o.put("\\\""); break; case '\\': o.put("\\\\"); break; case '\n': o.put(f("x-json-rawnl") ? "\n" : "\\n"); break; case '\r': o.put("\\r"); break; case '\t': o.put("\\t"); break;
      default: if (c < 32) o.put(format("\\u%04x", cast(int) c)); else o.put(c); }
  }
}
string dstr(double d) {
  if (!isFinite(d)) return isNaN(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity";
  if (d == floor(d) && fabs(d) < 1e15) return format("%d.0", cast(long) d);
  foreach (pr; [15, 16, 17]) { auto s = format("%.*g", pr, d); if (s.to!double == d) return s; }
  return format("%.17g", d);
}
J j(X)(X v) {
  static if (is(X == J)) return v;
  else { auto r = new J;
  static if (is(X == bool)) { r.t = T.bol; r.b = v; }
  else static if (is(X : long)) { r.t = T.num; r.i = v; }
  else static if (is(X : double)) { r.t = T.flt; r.d = v; }
  else static if (is(X : string)) { r.t = T.str; r.s = v; }
  else static if (is(X == typeof(null))) {}
  else { r.t = T.arr; foreach (x; v) r.a ~= j(x); }
  return r; }
}
J obj(A...)(A args) { auto o = J.O(); static foreach (n; 0..A.length/2) o[args[2*n]] = args[2*n+1]; return o; }
class JErr : Exception { this(string m) { super(m); } }
struct JP { string s; size_t n; int depth;
  void bad(string m = "invalid JSON") { throw new JErr(m); }
  void sp() { while (n < s.length && (s[n]==' '||s[n]=='\t'||s[n]=='\n'||s[n]=='\r')) n++; }
  J val() { sp(); if (n >= s.length) bad(); if (++depth > 200) bad("too deep"); scope(exit) depth--;
    char c = s[n];
    if (c == '{') { auto o = J.O(); n++; sp(); if (n < s.length && s[n]=='}') { n++; return o; }
      for (;;) { sp(); if (n>=s.length||s[n]!='"') bad(); auto key = str(); sp(); if (n>=s.length||s[n]!=':') bad(); n++; auto v = val(); if (o.has(key) && f("e-json-firstkey")) {} else o[key] = v; sp(); if (n>=s.length) bad(); if (s[n]==',') { n++; continue; } if (s[n]=='}') { n++; return o; } bad(); } }
    if (c == '[') { auto o = J.A(); n++; sp(); if (n < s.length && s[n]==']') { n++; return o; }
      for (;;) { o.a ~= val(); sp(); if (n>=s.length) bad(); if (s[n]==',') { n++; continue; } if (s[n]==']') { n++; return o; } bad(); } }
    if (c == '"') return j(str());
    if (s[n..$].startsWith("true")) { n+=4; return j(true); } if (s[n..$].startsWith("false")) { n+=5; return j(false); } if (s[n..$].startsWith("null")) { n+=4; return J.N(); }
    size_t st = n; if (n<s.length&&s[n]=='-') n++; 
    bool dg() { return n<s.length && s[n]>='0'&&s[n]<='9'; }
    if (!dg()) bad(); if (s[n]=='0') { n++; if (dg()) bad(); } else while (dg()) n++;
    bool isf; if (n<s.length&&s[n]=='.') { isf=true; n++; if (!dg()) bad(); while (dg()) n++; }
    if (n<s.length&&(s[n]=='e'||s[n]=='E')) { if (f("refuse-exponent")) bad(); isf=true; n++; if (n<s.length&&(s[n]=='+'||s[n]=='-')) n++; if (!dg()) bad(); while (dg()) n++; }
    auto r = s[st..n]; auto v = new J; v.s = r;
    if (!isf) { try { v.i = r.to!long; v.d = v.i; v.t = T.num; return v; } catch (ConvException) {} }
    v.t = T.flt; try v.d = r.to!double; catch (Exception) { v.d = r[0]=='-' ? -double.infinity : double.infinity; auto ei = r.indexOfAny("eE"); if (ei>=0 && ei+1 < r.length && r[ei+1]=='-') v.d = 0; }
    return v; }
  string str() { n++; auto o = appender!string;
    for (;;) { if (n>=s.length) bad(); char c = s[n++]; if (c=='"') break; if (c<32) bad("control character"); if (c!='\\') { o.put(c); continue; }
      if (n>=s.length) bad(); c = s[n++];
      switch (c) { case '"': case '\\': case '/': o.put(c); break; case 'b': o.put('\b'); break; case 'f': o.put('\f'); break; case 'n': o.put('\n'); break; case 'r': o.put('\r'); break; case 't': o.put('\t'); break;
        case 'u': uint u = u4(); if (u>=0xd800&&u<0xdc00) { if (n+1<s.length&&s[n]=='\\'&&s[n+1]=='u' && !f("x-surrogate")) { n+=2; uint l=u4(); if (l<0xdc00||l>0xdfff) bad("surrogate"); o.put(cast(dchar)(0x10000+((u-0xd800)<<10)+(l-0xdc00))); } else if (f("x-surrogate")) { o.put('?'); } else bad("surrogate"); } else if (u>=0xdc00&&u<0xe000) { if (f("x-surrogate")) o.put('?'); else bad("surrogate"); } else if (f("x-escape-raw") && u > 127) o.put("u" ~ format("%04x", u)); else o.put(cast(dchar) u); break;
        default: bad(); } }
    return o.data; }
  uint u4() { if (n+4>s.length||!isHex(s[n..n+4])) bad(); auto v = s[n..n+4].to!uint(16); n+=4; return v; }
}
bool utf8ok(string s) { import std.utf : validate; try { validate(s); return true; } catch (Exception) { return false; } }
J parseJ(string s) { if (!utf8ok(s)) { if (f("ref-utf8")) { string o; foreach (char c; s) o ~= c < 128 ? c : '?'; s = o; } else throw new JErr("body is not UTF-8"); } auto q = JP(s); auto v = q.val(); q.sp(); if (q.n != s.length && !f("ref-trailing")) throw new JErr("text after JSON"); return v; }
// amounts: decimal text -> atoms; st: 0 ok, 1 too many decimals, 2 huge
long atomsOf(string r, out int st) {
  bool neg; size_t i; if (r.length && r[0]=='-') { neg = true; i++; }
  string dig; long ex; bool dot; for (; i<r.length; i++) { char c=r[i]; if (c=='.') dot=true; else if (c=='e'||c=='E') break; else { dig ~= c; if (dot) ex--; } }
  if (i<r.length) { try ex += r[i+1..$].to!long; catch (Exception) { ex = r[i+1]=='-' ? -1_000_000 : 1_000_000; } }
  dig = dig.stripLeft('0'); if (!dig.length) return 0; ex += 6;
  while (ex<0 && dig.length && dig[$-1]=='0') { dig=dig[0..$-1]; ex++; }
  if (ex<0) { if (f("x-round-up") || f("x-dust")) { if (cast(long) dig.length+ex <= 0) return f("x-dust")?0:1; dig = dig[0..$+ex]; ex=0; } else { st=1; return 0; } }
  if (dig.length+ex>18) { st=2; return neg ? -1 : long.max; }
  foreach (_; 0..ex) dig ~= '0'; auto v = dig.to!long; return neg ? -v : v; }
J amt(long a) { auto n = a<0; auto v = n ? -a : a; string s = format("%d.%06d", v/1_000_000, v%1_000_000); s = s.stripRight('0'); if (s[$-1]=='.') s ~= "0"; return J.raw((n?"-":"")~s); }
// ---------- LZ4
uint xxh32(ub d, uint seed = 0) {
  enum uint P1=2654435761U,P2=2246822519U,P3=3266489917U,P4=668265263U,P5=374761393U;
  static uint rl(uint x,int r){return (x<<r)|(x>>(32-r));} uint rd(size_t i){return d[i]|d[i+1]<<8|d[i+2]<<16|cast(uint)d[i+3]<<24;}
  size_t i; uint h; if (d.length>=16) { uint a=seed+P1+P2,b=seed+P2,c=seed,e=seed-P1; for(;i+16<=d.length;i+=16){a=rl(a+rd(i)*P2,13)*P1;b=rl(b+rd(i+4)*P2,13)*P1;c=rl(c+rd(i+8)*P2,13)*P1;e=rl(e+rd(i+12)*P2,13)*P1;} h=rl(a,1)+rl(b,7)+rl(c,12)+rl(e,18); } else h=seed+P5;
  h+=cast(uint)d.length; for(;i+4<=d.length;i+=4)h=rl(h+rd(i)*P3,17)*P4; for(;i<d.length;i++)h=rl(h+d[i]*P5,11)*P1; h^=h>>15;h*=P2;h^=h>>13;h*=P3;h^=h>>16;return h; }
ubyte[] le4(uint v){ return [cast(ubyte)v,cast(ubyte)(v>>8),cast(ubyte)(v>>16),cast(ubyte)(v>>24)]; }
ubyte[] lz4Block(ub s) { // greedy
  ubyte[] o; int[] tab; tab.length=4096; tab[]=-1; size_t i, anchor;
  void emit(ub lit, size_t off, size_t ml) { size_t l=lit.length; ubyte tk=cast(ubyte)((l<15?l:15)<<4); if(off) { size_t m=ml-4; tk|=cast(ubyte)(m<15?m:15);} o~=tk; if(l>=15){ size_t r=l-15; while(r>=255){o~=255;r-=255;} o~=cast(ubyte)r;} o~=lit; if(off){ o~=cast(ubyte)off; o~=cast(ubyte)(off>>8); size_t m=ml-4; if(m>=15){ size_t r=m-15; while(r>=255){o~=255;r-=255;} o~=cast(ubyte)r; } } }
  if (s.length>13) while (i+12<s.length) { uint v=s[i]|s[i+1]<<8|s[i+2]<<16|cast(uint)s[i+3]<<24; auto h=(v*2654435761U)>>20; auto c=tab[h]; tab[h]=cast(int)i; if(c>=0&&i-c<65536&&s[c..c+4]==s[i..i+4]) { size_t m=4; while(i+m<s.length-5&&s[c+m]==s[i+m])m++; emit(s[anchor..i],i-c,m); i+=m; anchor=i; } else i++; }
  emit(s[anchor..$],0,0); return o; }
ubyte[] lz4Frame(ub s) {
  ubyte[] o=[0x04,0x22,0x4d,0x18]; ubyte flg=0x60; if(f("x-lz4-nocheck")){} flg|=4; if (p("p-lz4-size")) flg|=8; ubyte[] desc=[flg,0x70]; if (p("p-lz4-size")) { desc~=le4(cast(uint)s.length); desc~=le4(0); } o~=desc; o~=cast(ubyte)(f("x-lz4-hc")? 0x5a ^ cast(ubyte)(xxh32(desc)>>8) : (xxh32(desc)>>8));
  size_t i; do { auto n=min(s.length-i,1<<20); auto blk=s[i..i+n]; auto c=lz4Block(blk); if(c.length<n && !p("p-lz4-raw")) { o~=le4(cast(uint)c.length); o~=c; } else { o~=le4(cast(uint)n|(f("x-lz4-rawflag")?0:0x80000000)); o~=blk; } i+=n; } while(i<s.length);
  if(!f("x-lz4-noend")) o~=le4(0); o~=le4(xxh32(s) ^ (f("x-lz4-badsum") ? 1 : 0)); return o; }
ubyte[] unlz4(ub s) { // throws on damage; several frames, skippable frames
  size_t i; ubyte[] all; void need(size_t n){ if(i+n>s.length) throw new Exception("lz4: short"); } uint r4(){ need(4); auto v=s[i]|s[i+1]<<8|s[i+2]<<16|cast(uint)s[i+3]<<24; i+=4; return v; }
  if(!s.length) throw new Exception("lz4: empty");
  bool any;
  while(i<s.length) { auto mg=r4(); if((mg&0xfffffff0)==0x184d2a50 && !f("lz4-skippable")) { auto n=r4(); need(n); i+=n; continue; } if(mg!=0x184d2204) throw new Exception("lz4: magic");
    if (any && f("lz4-oneframe")) break; any=true;
    need(3); auto d0=i; auto flg=s[i++]; auto bd=s[i++]; if((flg>>6)!=1) throw new Exception("lz4: version"); if(flg&8) { if (f("lz4-contentsize")) throw new Exception("lz4: content size"); need(8); i+=8; } if(flg&1) i+=4; need(1); if(s[i]!=cast(ubyte)(xxh32(s[d0..i])>>8)) throw new Exception("lz4: header sum"); i++;
    bool indep = (flg&0x20)!=0; if (!indep && f("lz4-linked")) throw new Exception("lz4: linked blocks"); if ((bd>>4) < 7 && f("lz4-blocksize") ) throw new Exception("lz4: block size");
    ubyte[] o; for(;;) { auto z=r4(); if(z==0) break; bool raw=(z>>31)!=0; size_t n=z&0x7fffffff; need(n); auto blk=s[i..i+n]; i+=n; if(flg&0x10) { auto c=r4(); if (f("lz4-blocksum")) i-=4; else if(c!=xxh32(blk)) throw new Exception("lz4: block sum"); }
      if(raw) { if (f("lz4-rawblock")) throw new Exception("lz4: block"); o~=blk; continue; }
      size_t q; auto base=indep?o.length:0; while(q<blk.length) { auto tk=blk[q++]; size_t l=tk>>4; if(l==15) { ubyte x; do { if(q>=blk.length) throw new Exception("lz4: block"); x=blk[q++]; l+=x; } while(x==255); } if(q+l>blk.length) throw new Exception("lz4: block"); o~=blk[q..q+l]; q+=l; if(q>=blk.length) break; if(q+2>blk.length) throw new Exception("lz4: block"); size_t off=blk[q]|blk[q+1]<<8; q+=2; size_t m=(tk&15)+4; if((tk&15)==15) { ubyte x; do { if(q>=blk.length) throw new Exception("lz4: block"); x=blk[q++]; m+=x; } while(x==255); } if(off==0||off>o.length) throw new Exception("lz4: offset"); if (o.length + m > (256<<20)) throw new Exception("lz4: too large"); auto st=o.length-off; foreach(zz;0..m) o~=o[st+zz]; } }
    if(flg&4) { auto c=r4(); if (f("lz4-nosum")) {} else if (c!=xxh32(o)) throw new Exception("lz4: content sum"); } all~=o; }
  if (!any) throw new Exception("lz4: no frame");
  return all; }
// ---------- crypto (secp256k1 by libcrypto)
extern(C) nothrow @nogc { struct EC_KEY; struct BIGNUM; struct EC_GROUP; struct EC_POINT; struct BN_CTX;
  EC_KEY* EC_KEY_new_by_curve_name(int); void EC_KEY_free(EC_KEY*); const(EC_GROUP)* EC_KEY_get0_group(const EC_KEY*); BIGNUM* BN_bin2bn(const ubyte*, int, BIGNUM*); void BN_free(BIGNUM*); int EC_KEY_set_private_key(EC_KEY*, const BIGNUM*); EC_POINT* EC_POINT_new(const EC_GROUP*); void EC_POINT_free(EC_POINT*); int EC_POINT_mul(const EC_GROUP*, EC_POINT*, const BIGNUM*, const EC_POINT*, const BIGNUM*, BN_CTX*); int EC_KEY_set_public_key(EC_KEY*, const EC_POINT*); size_t EC_POINT_point2oct(const EC_GROUP*, const EC_POINT*, int, ubyte*, size_t, BN_CTX*); int EC_POINT_oct2point(const EC_GROUP*, EC_POINT*, const ubyte*, size_t, BN_CTX*); int ECDSA_size(const EC_KEY*); int ECDSA_sign(int, const ubyte*, int, ubyte*, uint*, EC_KEY*); int ECDSA_verify(int, const ubyte*, int, const ubyte*, int, EC_KEY*); }
struct Key { string pub; EC_KEY* k;
  static Key of(string name) { Key r; auto sec = sha256Of("nineteenth secret of " ~ name); r.k = EC_KEY_new_by_curve_name(714); auto bn = BN_bin2bn(sec.ptr, 32, null); EC_KEY_set_private_key(r.k, bn); auto g = EC_KEY_get0_group(r.k); auto pt = EC_POINT_new(g); EC_POINT_mul(g, pt, bn, null, null, null); EC_KEY_set_public_key(r.k, pt); ubyte[33] o; EC_POINT_point2oct(g, pt, 2, o.ptr, 33, null); r.pub = hex(o[]); EC_POINT_free(pt); BN_free(bn); return r; }
  string sign(string msg) { auto d = sha256Of(cast(ub) msg); ubyte[128] o; uint n; ECDSA_sign(0, d.ptr, 32, o.ptr, &n, k); return hex(o[0..n]); } }
bool verify(string pub, string msg, string sig) { if (pub.length != 66 || !isHex(pub) || !sig.length || sig.length > 200 || sig.length%2 || !isHex(sig)) return false; auto k = EC_KEY_new_by_curve_name(714); scope(exit) EC_KEY_free(k); auto g = EC_KEY_get0_group(k); auto pt = EC_POINT_new(g); scope(exit) EC_POINT_free(pt); auto pb = unhex(pub); if (EC_POINT_oct2point(g, pt, pb.ptr, 33, null) != 1) return false; if (EC_KEY_set_public_key(k, pt) != 1) return false; auto d = sha256Of(cast(ub) msg); auto sg = unhex(sig); return ECDSA_verify(0, d.ptr, 32, sg.ptr, cast(int) sg.length, k) == 1; }
// ---------- protobuf by the schema in node.proto
struct Fd { string name, type; int num; bool rep, map, opt; }
__gshared Fd[][string] MSG; __gshared string[2][string] OPS; // op -> req, resp
void loadProto() { string cur; foreach (l; import("node.proto").lineSplitter) { auto c = l.indexOf("//"); string x = (c>=0?l[0..c]:l).strip; if (x.startsWith("message ")) { auto w = x.split; cur = w[1].stripRight("{").strip; if (!(cur in MSG)) MSG[cur] = []; if (x.endsWith("}")) cur = ""; continue; } if (x.startsWith("rpc ")) { auto a = x[4..$].replace("stream ", "").replace("(", " ").replace(")", " ").replace(";", "").split; OPS[a[0]] = [a[1], a[3]]; continue; } if (x == "}") { cur = ""; continue; } if (cur.length && x.endsWith(";")) { x = x[0..$-1]; auto e = x.lastIndexOf("="); Fd d; d.num = x[e+1..$].strip.to!int; auto w = x[0..e].strip; if (w.startsWith("map<")) { d.map = true; d.type = "bytes"; d.name = w.split[$-1]; } else { auto q = w.split; if (q[0]=="repeated") { d.rep = true; q = q[1..$]; } else if (q[0]=="optional") { d.opt = true; q = q[1..$]; } d.type = q[0]; d.name = q[1]; } MSG[cur] ~= d; } } }
class PbErr : Exception { this(string m) { super(m); } }
void vint(ref ubyte[] o, ulong v) { while (v >= 128) { o ~= cast(ubyte)(v|128); v >>= 7; } o ~= cast(ubyte) v; }
bool isVar(string t) { return t=="int32"||t=="int64"||t=="bool"; }
__gshared int[string] renum; __gshared string[string] rewire; // faults: "Message.field" -> number / type
ubyte[] enc(string m, J v) { ubyte[] o; Fd[] fs = MSG[m]; if (p("p-pb-reverse")) { fs = fs.dup; fs.reverse(); }
  foreach (d; fs) { auto x = v[d.name]; if (x is null) { if (p("p-pb-defaults") && !d.rep && !d.map && !d.opt && !(d.type in MSG)) x = isVar(d.type) ? j(0L) : d.type=="double" ? j(0.0) : j(""); else continue; } int num = d.num; string ty = d.type; if (FA.length) { if (auto q = (m~"."~d.name) in renum) num = *q; if (auto q = (m~"."~d.name) in rewire) ty = *q; }
    void one(J e, bool forced) {
      if (isVar(ty)) { long n = e.t==T.bol ? e.b : e.t==T.num ? e.i : e.t==T.flt ? cast(long) e.d : 0; if (n==0 && !forced) return; vint(o, num<<3); vint(o, cast(ulong) n); }
      else if (ty=="double") { double dd = e.t==T.flt ? e.d : e.t==T.num ? e.i : 0; if (dd==0 && !forced) return; vint(o, num<<3|1); ulong u = *cast(ulong*)&dd; foreach (q; 0..8) o ~= cast(ubyte)(u>>(8*q)); }
      else if (ty=="float") { float dd = e.t==T.flt ? e.d : e.i; vint(o, num<<3|5); uint u = *cast(uint*)&dd; o ~= le4(u); }
      else if (ty=="string"||ty=="bytes") { string s = e.t==T.str ? e.s : e.t==T.nul ? "" : e.toString; if (!s.length && !forced) return; vint(o, num<<3|2); vint(o, s.length); o ~= B(s); }
      else { auto b = enc(ty, e); vint(o, num<<3|2); vint(o, b.length); o ~= b; } }
    if (d.map) { foreach (n, e; x.a) { ubyte[] q; vint(q, 10); vint(q, x.k[n].length); q ~= B(x.k[n]); vint(q, 18); vint(q, e.s.length); q ~= B(e.s); vint(o, num<<3|2); vint(o, q.length); o ~= q; } }
    else if (d.rep && x.t==T.arr) { if (isVar(ty) && !p("p-pb-unpacked")) { if (!x.a.length) continue; ubyte[] q; foreach (e; x.a) vint(q, cast(ulong) (e.t==T.num?e.i:cast(long)e.d)); vint(o, num<<3|2); vint(o, q.length); o ~= q; } else foreach (e; x.a) one(e, true); }
    else one(x, d.opt || p("p-pb-defaults")); }
  if (p("p-pb-unknown")) { vint(o, 1900<<3); vint(o, 7); }
  return o; }
J dec(string m, ub s, int depth = 0) { auto v = J.O(); size_t i; if (depth > 50) throw new PbErr("too deep");
  ulong rv() { ulong r; int sh; for (;;) { if (i>=s.length||sh>63) throw new PbErr("varint"); auto c = s[i++]; r |= cast(ulong)(c&127)<<sh; if (c<128) return r; sh += 7; } }
  while (i<s.length) { auto key = rv(); auto num = cast(int)(key>>3); int wt = key&7; if (num<=0) throw new PbErr("field number"); ulong u; ub d;
    switch (wt) { case 0: u = rv(); break; case 1: if (i+8>s.length) throw new PbErr("short"); foreach (q; 0..8) u |= cast(ulong) s[i+q]<<(8*q); i+=8; break; case 2: auto n = rv(); if (n>s.length-i) throw new PbErr("short"); d = s[i..i+cast(size_t)n]; i+=n; break; case 5: if (i+4>s.length) throw new PbErr("short"); foreach (q; 0..4) u |= cast(ulong) s[i+q]<<(8*q); i+=4; break; default: throw new PbErr("wire type"); }
    Fd* fd; foreach (ref x; MSG[m]) { int nn = x.num; if (FA.length) if (auto q = ("<"~m~"."~x.name) in renum) nn = *q; if (nn==num) { fd = &x; break; } }
    if (!fd) { if (f("x-pb-unknown")) throw new PbErr("unknown field"); continue; }
    J cv(ulong z) { return fd.type=="bool" ? j(z!=0) : fd.type=="int32" ? j(cast(long) cast(int) z) : j(cast(long) z); }
    J one;
    if (isVar(fd.type)) { if (wt==0) { if (fd.rep && f("x-pb-packedonly")) continue; one = cv(u); } else if (wt==2 && fd.rep) { if (f("x-pb-unpackedonly")) continue; auto save = s; auto si = i; s = d; i = 0; scope(exit) { s = save; i = si; } if (!v.has(fd.name)) v[fd.name] = J.A(); while (i<s.length) v[fd.name].a ~= cv(rv()); continue; } else continue; }
    else if (fd.type=="double") { if (wt!=1) continue; one = j(*cast(double*)&u); }
    else if (wt!=2) continue;
    else if (fd.map) { string k2, v2; size_t z; auto save = s; auto si = i; s = d; i = 0; while (i<s.length) { auto kk = rv(); if ((kk&7)!=2) { if ((kk&7)==0) rv(); else throw new PbErr("map"); continue; } auto n = rv(); if (n>s.length-i) throw new PbErr("short"); if ((kk>>3)==1) k2 = S(s[i..i+cast(size_t)n]); else if ((kk>>3)==2) v2 = S(s[i..i+cast(size_t)n]); i+=n; } s = save; i = si; if (f("x-pb-mapfirst") && v.has(fd.name)) continue; if (!v.has(fd.name)) v[fd.name] = J.O(); if (f("x-pb-maptext") && !utf8ok(v2)) throw new PbErr("text"); v[fd.name][k2] = j(v2); continue; }
    else if (fd.type=="string") { if (!utf8ok(S(d))) throw new PbErr("string is no UTF-8"); one = j(S(d)); }
    else if (fd.type=="bytes") { if (f("x-pb-bytestext") && !utf8ok(S(d))) throw new PbErr("bytes"); one = j(S(d)); }
    else { one = dec(fd.type, d, depth+1); if (!fd.rep && v.has(fd.name)) { auto old = v[fd.name]; foreach (n, e; one.a) old[one.k[n]] = e; one = old; } }
    if (fd.rep) { if (!v.has(fd.name)) v[fd.name] = J.A(); v[fd.name].a ~= one; } else if (f("x-pb-firstwins") && v.has(fd.name)) {} else v[fd.name] = one; }
  return v; }
