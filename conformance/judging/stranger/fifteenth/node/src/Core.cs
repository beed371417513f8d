using System; using System.Collections.Generic; using System.Globalization; using System.IO; using System.Text; using System.Threading; using System.Security.Cryptography;
namespace Fx {
public static class G {
  public static string Fault=null; public static HashSet<string> Pec=new HashSet<string>();
  public static int Port=8000; public static List<string> PeerArgs=new List<string>();
  public static DateTime Start=DateTime.UtcNow; public static System.Diagnostics.Stopwatch Sw=System.Diagnostics.Stopwatch.StartNew();
  public static bool F(string id){ return Fault!=null && Fault==id; }
  public static bool P(string id){ return Pec.Count>0 && Pec.Contains(id); }
  public static readonly CultureInfo C=CultureInfo.InvariantCulture;
  public static readonly UTF8Encoding U=new UTF8Encoding(false,true);
  public static readonly UTF8Encoding UL=new UTF8Encoding(false,false);
  static readonly RandomNumberGenerator rng=RandomNumberGenerator.Create();
  public static byte[] Rnd(int n){ var b=new byte[n]; lock(rng) rng.GetBytes(b); return b; }
  public static string Hex(byte[] b){ var sb=new StringBuilder(b.Length*2); foreach(var x in b) sb.Append("0123456789abcdef"[x>>4]).Append("0123456789abcdef"[x&15]); return sb.ToString(); }
  public static byte[] UnHex(string s){ if(s==null||s.Length%2!=0) return null; var r=new byte[s.Length/2]; for(int i=0;i<r.Length;i++){ int a=HexV(s[2*i]),b=HexV(s[2*i+1]); if(a<0||b<0) return null; r[i]=(byte)(a*16+b);} return r; }
  static int HexV(char c){ if(c>='0'&&c<='9') return c-'0'; if(c>='a'&&c<='f') return c-'a'+10; if(c>='A'&&c<='F') return c-'A'+10; return -1; }
  public static byte[] Sha(byte[] b){ using(var h=SHA256.Create()) return h.ComputeHash(b); }
  public static byte[] Sha(string s){ return Sha(UL.GetBytes(s)); }
  public static string ShaHex(string s){ return Hex(Sha(s)); }
  public static byte[] Sha1(byte[] b){ using(var h=SHA1.Create()) return h.ComputeHash(b); }
  public static string Iso(DateTime t){
    if(P("ts_offset")) return t.ToString("yyyy-MM-dd'T'HH:mm:ss.fff",C)+"+00:00";
    if(P("ts_micro")) return t.ToString("yyyy-MM-dd'T'HH:mm:ss.ffffff",C)+"Z";
    return t.ToString("yyyy-MM-dd'T'HH:mm:ss.fff",C)+"Z"; }
  public static string Iso6(DateTime t){ return t.ToString("yyyy-MM-dd'T'HH:mm:ss.ffffff",C)+(P("ts_offset")?"+00:00":"Z"); }
  public static string Day(DateTime t){ return t.ToString("yyyy-MM-dd",C); }
  static long lastT=0; static readonly object tl=new object();
  public static DateTime Now(){ lock(tl){ long t=DateTime.UtcNow.Ticks/10*10; if(t<=lastT) t=lastT+10; lastT=t; return new DateTime(t,DateTimeKind.Utc);} }
  public static string Id(string prefix){ return prefix+Hex(Rnd(9)); }
}
public class Num { public string Raw; public Num(string r){Raw=r;}
  public double D { get { double d; if(!double.TryParse(Raw,NumberStyles.Float,G.C,out d)) return double.PositiveInfinity*(Raw.StartsWith("-")?-1:1); return d; } }
  public bool IsInt { get { double d=D; return !double.IsInfinity(d)&&!double.IsNaN(d)&&d==Math.Floor(d); } }
  public bool Long(out long v){ v=0; if(long.TryParse(Raw,NumberStyles.AllowLeadingSign,G.C,out v)) return true; double d=D; if(!IsInt||Math.Abs(d)>9e15) return false; v=(long)d; return true; } }
public class Obj { public List<string> K=new List<string>(); public Dictionary<string,object> D=new Dictionary<string,object>(StringComparer.Ordinal);
  public object this[string k]{ get{ object o; return D.TryGetValue(k,out o)?o:null; } set{ if(!D.ContainsKey(k)) K.Add(k); D[k]=value; } }
  public bool Has(string k){ return D.ContainsKey(k); } public void Rm(string k){ D.Remove(k); K.Remove(k); }
  public static Obj O(params object[] a){ var o=new Obj(); for(int i=0;i+1<a.Length;i+=2) o[(string)a[i]]=a[i+1]; return o; } }
public class JErr: Exception { public JErr(string m):base(m){} }
public class Json {
  string s; int p;
  public static object Parse(string s){ var j=new Json{s=s,p=0}; var v=j.Val(0); j.Ws(); if(j.p!=s.Length) throw new JErr("trailing data"); return v; }
  void Ws(){ while(p<s.Length&&(s[p]==' '||s[p]=='\t'||s[p]=='\n'||s[p]=='\r')) p++; }
  object Val(int depth){ if(depth>100) throw new JErr("too deep"); Ws(); if(p>=s.Length) throw new JErr("end of text");
    char c=s[p];
    if(c=='{'){ p++; var o=new Obj(); Ws(); if(p<s.Length&&s[p]=='}'){p++;return o;}
      while(true){ Ws(); if(p>=s.Length||s[p]!='"') throw new JErr("key expected"); string k=Str(); Ws(); if(p>=s.Length||s[p]!=':') throw new JErr("colon expected"); p++; object v=Val(depth+1); o[k]=v; Ws(); if(p>=s.Length) throw new JErr("end of text"); if(s[p]==','){p++;continue;} if(s[p]=='}'){p++;return o;} throw new JErr("comma expected"); } }
    if(c=='['){ p++; var l=new List<object>(); Ws(); if(p<s.Length&&s[p]==']'){p++;return l;}
      while(true){ l.Add(Val(depth+1)); Ws(); if(p>=s.Length) throw new JErr("end of text"); if(s[p]==','){p++;continue;} if(s[p]==']'){p++;return l;} throw new JErr("comma expected"); } }
    if(c=='"') return Str();
    if(string.CompareOrdinal(s,p,"true",0,4)==0){p+=4;return true;} if(string.CompareOrdinal(s,p,"false",0,5)==0){p+=5;return false;} if(string.CompareOrdinal(s,p,"null",0,4)==0){p+=4;return null;}
    int q=p; if(p<s.Length&&s[p]=='-') p++; if(p>=s.Length) throw new JErr("value expected");
    if(s[p]=='0') p++; else if(s[p]>='1'&&s[p]<='9'){ while(p<s.Length&&s[p]>='0'&&s[p]<='9') p++; } else throw new JErr("value expected");
    if(p<s.Length&&s[p]=='.'){ p++; int z=p; while(p<s.Length&&s[p]>='0'&&s[p]<='9') p++; if(z==p) throw new JErr("digits expected"); }
    if(p<s.Length&&(s[p]=='e'||s[p]=='E')){ if(G.F("exp_number")) throw new JErr("no exponent"); p++; if(p<s.Length&&(s[p]=='+'||s[p]=='-')) p++; int z=p; while(p<s.Length&&s[p]>='0'&&s[p]<='9') p++; if(z==p) throw new JErr("digits expected"); }
    return new Num(s.Substring(q,p-q)); }
  string Str(){ p++; var sb=new StringBuilder();
    while(true){ if(p>=s.Length) throw new JErr("unterminated string"); char c=s[p++];
      if(c=='"') break; if(c<' ') throw new JErr("control character");
      if(c=='\\'){ if(p>=s.Length) throw new JErr("end"); c=s[p++]; switch(c){ case '"':case '\\':case '/': sb.Append(c);break; case 'b':sb.Append('\b');break; case 'f':sb.Append('\f');break; case 'n':sb.Append('\n');break; case 'r':sb.Append('\r');break; case 't':sb.Append('\t');break;
        case 'u': if(p+4>s.Length) throw new JErr("bad escape"); int v; if(G.F("json_uescape")){ sb.Append("\\u").Append(s,p,4); p+=4; break; } if(!int.TryParse(s.Substring(p,4),NumberStyles.AllowHexSpecifier,G.C,out v)) throw new JErr("bad escape"); sb.Append((char)v); p+=4; break;
        default: throw new JErr("bad escape"); } }
      else sb.Append(c); }
    for(int i=0;i<sb.Length;i++){ if(char.IsHighSurrogate(sb[i])){ if(i+1<sb.Length&&char.IsLowSurrogate(sb[i+1])) i++; else throw new JErr("lone surrogate"); } else if(char.IsLowSurrogate(sb[i])) throw new JErr("lone surrogate"); }
    return sb.ToString(); }
  public static string W(object v){ var sb=new StringBuilder(); Wr(sb,v,0); return sb.ToString(); }
  public static bool Pretty=false;
  static void Wr(StringBuilder sb,object v,int ind){
    if(v==null) sb.Append("null");
    else if(v is string) WStr(sb,(string)v);
    else if(v is bool) sb.Append((bool)v?"true":"false");
    else if(v is int) sb.Append(((int)v).ToString(G.C)); else if(v is long) sb.Append(((long)v).ToString(G.C));
    else if(v is double) sb.Append(Dbl((double)v));
    else if(v is decimal) sb.Append(((decimal)v).ToString(G.C));
    else if(v is Num) sb.Append(((Num)v).Raw);
    else if(v is Obj){ var o=(Obj)v; sb.Append('{'); bool f=true; IEnumerable<string> ks=o.K; if(G.P("sorted_keys")){ var l=new List<string>(o.K); l.Sort(StringComparer.Ordinal); ks=l; } if(G.P("reverse_keys")){ var l=new List<string>(o.K); l.Reverse(); ks=l; }
      foreach(var k in ks){ if(!f) sb.Append(','); f=false; if(Pretty){ sb.Append('\n').Append(' ',ind+2);} WStr(sb,k); sb.Append(Pretty?": ":":"); Wr(sb,o.D[k],ind+2);} if(Pretty&&!f) sb.Append('\n').Append(' ',ind); sb.Append('}'); }
    else if(v is System.Collections.IEnumerable){ sb.Append('['); bool f=true; foreach(var x in (System.Collections.IEnumerable)v){ if(!f) sb.Append(Pretty?", ":","); f=false; Wr(sb,x,ind+2);} sb.Append(']'); }
    else throw new Exception("json type "+v.GetType()); }
  public static string Dbl(double d){ if(double.IsNaN(d)) return "NaN"; if(double.IsInfinity(d)) return "Infinity"; string s=d.ToString("R",G.C); if(s.IndexOf('.')<0&&s.IndexOf('E')<0&&!G.P("whole_no_point")) s+=".0"; return s; }
  static void WStr(StringBuilder sb,string s){ sb.Append('"'); bool esc=G.P("ascii_json"); foreach(char c in s){ switch(c){ case '"':sb.Append("\\\"");break; case '\\':sb.Append("\\\\");break; case '\n':sb.Append("\\n");break; case '\r':sb.Append("\\r");break; case '\t':sb.Append("\\t");break;
      case '/': sb.Append(G.P("escaped_slash")?"\\/":"/"); break;
      default: if(c<' '||c==0x7f||(esc&&c>126)||c==0x2028||c==0x2029) sb.Append("\\u").Append(((int)c).ToString("x4")); else sb.Append(c); break; } } sb.Append('"'); }
}
public static class Lz4 {
  public static uint XX32(byte[] b,int o,int n,uint seed=0){ unchecked{ const uint P1=2654435761,P2=2246822519,P3=3266489917,P4=668265263,P5=374761393; uint h; int p=o,e=o+n;
    if(n>=16){ uint v1=seed+P1+P2,v2=seed+P2,v3=seed,v4=seed-P1; while(p<=e-16){ v1=R(v1+BitConverter.ToUInt32(b,p)*P2,13)*P1; v2=R(v2+BitConverter.ToUInt32(b,p+4)*P2,13)*P1; v3=R(v3+BitConverter.ToUInt32(b,p+8)*P2,13)*P1; v4=R(v4+BitConverter.ToUInt32(b,p+12)*P2,13)*P1; p+=16;} h=R(v1,1)+R(v2,7)+R(v3,12)+R(v4,18);} else h=seed+P5;
    h+=(uint)n; while(p+4<=e){ h=R(h+BitConverter.ToUInt32(b,p)*P3,17)*P4; p+=4;} while(p<e){ h=R(h+b[p]*P5,11)*P1; p++; } h^=h>>15; h*=P2; h^=h>>13; h*=P3; h^=h>>16; return h; } }
  static uint R(uint x,int r){ return (x<<r)|(x>>(32-r)); }
  // frame of blocks; simple greedy compressor
  public static byte[] Frame(byte[] d,bool stored=false){ var m=new MemoryStream(); m.Write(new byte[]{0x04,0x22,0x4D,0x18},0,4); var hd=new List<byte>();
    bool cs=G.P("lz4_content_checksum"); bool sz=!G.P("lz4_no_size"); byte flg=(byte)(0x60|(cs?4:0)|(sz?8:0)); hd.Add(flg); hd.Add(0x40|0x20); hd[1]=0x60; if(sz) hd.AddRange(BitConverter.GetBytes((long)d.Length)); var ha=hd.ToArray(); m.Write(ha,0,ha.Length); byte hc=(byte)(XX32(ha,0,ha.Length)>>8); if(G.F("lz4_header_checksum")) hc^=0x5a; m.WriteByte(hc);
    int B=262144; for(int o=0;o<d.Length;o+=B){ int n=Math.Min(B,d.Length-o); byte[] c=stored||G.P("lz4_stored")?null:Block(d,o,n); if(c!=null&&c.Length<n){ m.Write(BitConverter.GetBytes(c.Length),0,4); m.Write(c,0,c.Length);} else { m.Write(BitConverter.GetBytes((uint)n|0x80000000u),0,4); m.Write(d,o,n);} }
    if(!G.F("lz4_no_endmark")) m.Write(new byte[4],0,4); if(cs) m.Write(BitConverter.GetBytes(XX32(d,0,d.Length)),0,4); return m.ToArray(); }
  static byte[] Block(byte[] d,int o,int n){ var r=new MemoryStream(); var tab=new int[4096]; for(int i=0;i<4096;i++) tab[i]=-1; int p=o,anchor=o,end=o+n,lim=end-12;
    while(p<lim){ uint v=BitConverter.ToUInt32(d,p); int h=(int)(unchecked(v*2654435761u)>>20); int c=tab[h]; tab[h]=p; if(c>=o&&p-c<65535&&BitConverter.ToUInt32(d,c)==v){ int l=4; while(p+l<end-5&&d[c+l]==d[p+l]) l++; Seq(r,d,anchor,p-anchor,p-c,l); p+=l; anchor=p; } else p++; }
    Seq(r,d,anchor,end-anchor,0,0); return r.ToArray(); }
  static void Seq(MemoryStream r,byte[] d,int lo,int ll,int off,int ml){ int t=(ll>=15?15:ll)<<4; if(off>0) t|=(ml-4>=15?15:ml-4); r.WriteByte((byte)t); if(ll>=15) Ln(r,ll-15); r.Write(d,lo,ll); if(off>0){ r.WriteByte((byte)off); r.WriteByte((byte)(off>>8)); if(ml-4>=15) Ln(r,ml-4-15);} }
  static void Ln(MemoryStream r,int x){ while(x>=255){ r.WriteByte(255); x-=255;} r.WriteByte((byte)x); }
  public static byte[] Decode(byte[] b){ try{ if(b.Length<7||BitConverter.ToUInt32(b,0)!=0x184D2204) return null; int flg=b[4]; if((flg>>6)!=1) return null; bool bcs=(flg&16)!=0,sz=(flg&8)!=0,cs=(flg&4)!=0,did=(flg&1)!=0; if(sz&&G.F("lz4_in_no_size")) return null; int p=6; if(sz) p+=8; if(did) p+=4; if((byte)(XX32(b,4,p-4)>>8)!=b[p]) return null; p++;
      if(cs&&G.F("lz4_in_no_checksum")) return null; if((flg&32)==0&&G.F("lz4_in_linked")) return null;
      var o=new List<byte[]>(); var outb=new byte[Math.Max(1024,b.Length*4)]; int w=0;
      while(true){ uint n=BitConverter.ToUInt32(b,p); p+=4; if(n==0) break; bool raw=(n&0x80000000)!=0; int k=(int)(n&0x7fffffff); if(p+k>b.Length) return null;
        if(raw){ if(G.F("lz4_in_stored")) return null; Need(ref outb,w+k); Buffer.BlockCopy(b,p,outb,w,k); w+=k; } else { int q=p,e=p+k; while(q<e){ int t=b[q++]; int ll=t>>4; if(ll==15){ int x; do{ x=b[q++]; ll+=x;}while(x==255);} Need(ref outb,w+ll); Buffer.BlockCopy(b,q,outb,w,ll); q+=ll; w+=ll; if(q>=e) break; int off=b[q]|(b[q+1]<<8); q+=2; if(off==0||off>w) return null; int ml=t&15; if(ml==15){ int x; do{ x=b[q++]; ml+=x;}while(x==255);} ml+=4; Need(ref outb,w+ml); for(int i=0;i<ml;i++){ outb[w]=outb[w-off]; w++; } } if(q!=e) return null; }
        p+=k; if(bcs){ if(BitConverter.ToUInt32(b,p)!=XX32(b,p-k,k)) return null; p+=4; } if(w>512<<20) return null; }
      if(cs){ if(BitConverter.ToUInt32(b,p)!=XX32(outb,0,w)) return null; p+=4; }
      var r=new byte[w]; Buffer.BlockCopy(outb,0,r,0,w); return r; }catch(Exception){ return null; } }
  static void Need(ref byte[] o,int n){ if(n>o.Length) Array.Resize(ref o,Math.Max(n,o.Length*2)); }
}
public class Program {
  static string Dir(){ return Path.GetDirectoryName(System.Reflection.Assembly.GetExecutingAssembly().Location); }
  public static int Main(string[] a){
    Thread.CurrentThread.CurrentCulture=G.C; CultureInfo.DefaultThreadCurrentCulture=G.C;
    if(a.Length>0&&a[0]=="--list"){ var f=new Obj(); foreach(var l in File.ReadAllLines(Path.Combine(Dir(),"faults.tsv"))){ var c=l.Split('\t'); if(c.Length>=2) f[c[0]]=c[1]; } var p=new List<object>(); foreach(var l in File.ReadAllLines(Path.Combine(Dir(),"peculiarities.tsv"))){ var c=l.Split('\t'); if(c.Length>=2) p.Add(c[0]); } Console.WriteLine(Json.W(Obj.O("faults",f,"peculiar",p))); return 0; }
    if(a.Length>1&&a[0]=="sign"){ try{ Console.WriteLine(Json.W(Signer.Run((Obj)Json.Parse(a[1])))); return 0; }catch(Exception e){ Console.Error.WriteLine("sign: "+e.Message); return 1; } }
    for(int i=0;i<a.Length;i++){ string k=a[i],v=null; int q=k.IndexOf('='); if(k.StartsWith("--")&&q>0){ v=k.Substring(q+1); k=k.Substring(0,q);} else if(i+1<a.Length) v=a[++i];
      if(v==null){ Console.Error.WriteLine("value for "+k); return 2; }
      if(k=="--port") G.Port=int.Parse(v); else if(k=="--fault") G.Fault=v; else if(k=="--peculiar"){ foreach(var x in v.Split(',')) G.Pec.Add(x);} else if(k=="--peer") G.PeerArgs.Add(v); else { Console.Error.WriteLine("unknown option "+k); return 2; } }
    Json.Pretty=G.P("pretty_json");
    S.Init(); Chain.Init(); Pipe.Init(); Dht.Init();
    var h=new HttpServer(G.Port); var g=new H2Server(G.Port+1000); h.Start(); g.Start(); Chain.StartLoop(); Peers.Start();
    Console.WriteLine("serving http "+G.Port+" grpc "+(G.Port+1000)); Console.Out.Flush();
    Thread.Sleep(Timeout.Infinite); return 0; }
}
}
