using System; using System.Collections.Generic; using System.IO; using System.IO.Compression; using System.Net; using System.Net.Sockets; using System.Text; using System.Threading;
namespace Fx {
public class Req { public string Method,Target,Path,Query,Version; public Dictionary<string,string> H=new Dictionary<string,string>(); public byte[] Body=new byte[0]; public Conn C; public System.Diagnostics.Stopwatch Sw=System.Diagnostics.Stopwatch.StartNew(); public DateTime T0=DateTime.UtcNow;
  public string Hdr(string n){ string v; return H.TryGetValue(n,out v)?v:null; }
  Dictionary<string,string> q; public Dictionary<string,string> Q { get { if(q!=null) return q; q=new Dictionary<string,string>(); int n=0; foreach(var part in Query.Split('&')){ if(part.Length==0) continue; int e=part.IndexOf('='); string k=e<0?part:part.Substring(0,e),v=e<0?"":part.Substring(e+1); if(!G.F("query_no_decode")){ k=Dec(k); v=Dec(v);} n++; if(G.F("query_first_only")&&n>1) break; if(!q.ContainsKey(k)) q[k]=v; } return q; } }
  public static string Dec(string s){ try{ var b=new List<byte>(); var src=G.UL.GetBytes(s); for(int i=0;i<src.Length;i++){ if(src[i]=='+') b.Add((byte)' '); else if(src[i]=='%'&&i+2<src.Length){ var x=G.UnHex(((char)src[i+1]).ToString()+(char)src[i+2]); if(x==null) b.Add(src[i]); else { b.Add(x[0]); i+=2; } } else b.Add(src[i]); } return G.UL.GetString(b.ToArray()); }catch(Exception){ return s; } }
}
public class Resp { public int Status=200; public byte[] Body=new byte[0]; public string Type="application/json"; public Dictionary<string,string> H=new Dictionary<string,string>(); public IEnumerable<string> Sse; public bool Close; public string Text;
  public static Resp J(object o,int st=200){ var t=Json.W(o); return new Resp{Status=st,Text=t,Body=G.UL.GetBytes(t)}; } }
public class Err: Exception { public int Status; public string Code; public Obj Details; public Err(int s,string c,string m,Obj d=null):base(m){Status=s;Code=c;Details=d;} }
public class Conn { public Socket S; public NetworkStream N; byte[] buf=new byte[16384]; int pos,len; public string StickyTok; public bool Refused; public int Count;
  public int Byte(){ if(pos>=len){ len=N.Read(buf,0,buf.Length); pos=0; if(len<=0){ len=0; return -1;} Interlocked.Add(ref St.BytesIn,len);} return buf[pos++]; }
  public bool Read(byte[] d,int o,int n){ while(n>0){ if(pos>=len){ len=N.Read(buf,0,buf.Length); pos=0; if(len<=0){len=0;return false;} Interlocked.Add(ref St.BytesIn,len);} int k=Math.Min(n,len-pos); Buffer.BlockCopy(buf,pos,d,o,k); pos+=k;o+=k;n-=k;} return true; }
  public string Line(int max){ var sb=new StringBuilder(); while(true){ int c=Byte(); if(c<0) return null; if(c=='\n'){ if(sb.Length>0&&sb[sb.Length-1]=='\r') sb.Length--; return sb.ToString(); } sb.Append((char)c); if(sb.Length>max) throw new Err(431,"HEADERS_TOO_LARGE","a line of the head is too long"); } }
  public void Send(byte[] b){ N.Write(b,0,b.Length); Interlocked.Add(ref St.BytesOut,b.Length); } }
public static class St { public static long BytesIn,BytesOut,Rpc,Active; }
public class HttpServer {
  int port; TcpListener l; public HttpServer(int p){port=p;}
  public void Start(){ l=new TcpListener(IPAddress.Loopback,port); l.Server.SetSocketOption(SocketOptionLevel.Socket,SocketOptionName.ReuseAddress,true); l.Start(256); new Thread(()=>{ while(true){ Socket s; try{ s=l.AcceptSocket(); }catch(Exception){ Thread.Sleep(50); continue; } var t=new Thread(()=>Serve(s),262144); t.IsBackground=true; t.Start(); } }){IsBackground=true}.Start(); }
  void Serve(Socket s){ Interlocked.Increment(ref St.Active); try{ s.NoDelay=true; s.ReceiveTimeout=90000; s.SendTimeout=30000; var c=new Conn{S=s,N=new NetworkStream(s,false)};
      while(true){ Req r; try{ r=Read(c); }catch(Err e){ Write(c,null,NodeApi.ErrResp(e),true); break; } if(r==null) break;
        c.Count++; Resp resp=null; try{ resp=Router.Handle(r); }catch(Err e){ resp=NodeApi.ErrResp(e); }catch(Exception e){ Console.Error.WriteLine(e); resp=NodeApi.ErrResp(new Err(500,"INTERNAL","unexpected failure")); }
        string cn=(r.Hdr("connection")??"").ToLowerInvariant(); bool close=cn.Contains("close")||(r.Version=="HTTP/1.0"&&!cn.Contains("keep-alive"))||resp.Close||G.P("close_each"); if(G.P("close_on_error")&&resp.Status>=400) close=true;
        if(!Write(c,r,resp,close)) break; if(close) break; }
    }catch(IOException){}catch(SocketException){}catch(ObjectDisposedException){}catch(Exception e){ Console.Error.WriteLine(e);} finally{ Interlocked.Decrement(ref St.Active); try{ s.Shutdown(SocketShutdown.Both);}catch(Exception){} try{ s.Close(); }catch(Exception){} } }
  Req Read(Conn c){ string ln=c.Line(65536); if(ln==null) return null; if(ln==""){ ln=c.Line(65536); if(ln==null) return null; }
    var r=new Req{C=c}; var p=ln.Split(' '); if(p.Length!=3||!p[2].StartsWith("HTTP/1.")) throw new Err(400,"MALFORMED_REQUEST","this is no request line"); r.Method=p[0]; r.Target=p[1]; r.Version=p[2];
    int tot=0; while(true){ ln=c.Line(65536); if(ln==null) return null; if(ln=="") break; tot+=ln.Length; if(tot>131072) throw new Err(431,"HEADERS_TOO_LARGE","the head is too long"); int k=ln.IndexOf(':'); if(k<=0) throw new Err(400,"MALFORMED_REQUEST","this is no header"); string n=ln.Substring(0,k).Trim(); string v=ln.Substring(k+1).Trim();
      if(G.F("hdr_case_auth")&&n!="Authorization"&&n.ToLowerInvariant()=="authorization") continue; if(G.F("hdr_case_len")&&n.ToLowerInvariant()=="content-length"&&n!="Content-Length"&&n!="content-length") continue;
      n=n.ToLowerInvariant(); if(r.H.ContainsKey(n)) r.H[n]=n=="authorization"?"\u0000":r.H[n]+", "+v; else r.H[n]=v; }
    r.Sw.Restart(); r.T0=DateTime.UtcNow;
    string t=r.Target; if(t.StartsWith("http://")){ int sl=t.IndexOf('/',7); t=sl<0?"/":t.Substring(sl);} int h=t.IndexOf('#'); if(h>=0) t=t.Substring(0,h); int q=t.IndexOf('?'); r.Path=q<0?t:t.Substring(0,q); r.Query=q<0?"":t.Substring(q+1);
    string ex=r.Hdr("expect"); if(ex!=null&&ex.ToLowerInvariant()=="100-continue"&&!G.F("no_100_continue")) c.Send(Encoding.ASCII.GetBytes("HTTP/1.1 100 Continue\r\n\r\n"));
    string te=r.Hdr("transfer-encoding"); string cl=r.Hdr("content-length"); int max=16<<20;
    if(te!=null){ if(te.ToLowerInvariant()!="chunked") throw new Err(501,"UNSUPPORTED","this transfer coding is not served"); var m=new MemoryStream(); int nch=0; while(true){ ln=c.Line(4096); if(ln==null) return null; int sc=ln.IndexOf(';'); if(sc>=0) ln=ln.Substring(0,sc); int n; if(!int.TryParse(ln.Trim(),System.Globalization.NumberStyles.AllowHexSpecifier,G.C,out n)||n<0) throw new Err(400,"MALFORMED_REQUEST","this is no chunk"); if(n==0){ while((ln=c.Line(4096))!=null&&ln!=""){} break; } if(m.Length+n>max) throw new Err(413,"BODY_TOO_LARGE","the body is too long"); var b=new byte[n]; if(!c.Read(b,0,n)) return null; nch++; if(!(G.F("chunk_first_only")&&nch>1)) m.Write(b,0,n); c.Line(16); } r.Body=G.F("chunk_ignored")?new byte[0]:m.ToArray(); }
    else if(cl!=null){ int n; if(!int.TryParse(cl,System.Globalization.NumberStyles.None,G.C,out n)) throw new Err(400,"MALFORMED_REQUEST","this is no length"); if(n>max) throw new Err(413,"BODY_TOO_LARGE","the body is too long"); r.Body=new byte[n]; if(!c.Read(r.Body,0,n)) return null; if(G.F("body_8k")&&n>8192){ Array.Resize(ref r.Body,8192); } }
    return r; }
  static string Reason(int s){ switch(s){ case 200:return "OK"; case 302:return "Found"; case 400:return "Bad Request"; case 401:return "Unauthorized"; case 402:return "Payment Required"; case 404:return "Not Found"; case 405:return "Method Not Allowed"; case 409:return "Conflict"; case 410:return "Gone"; case 413:return "Payload Too Large"; case 415:return "Unsupported Media Type"; case 422:return "Unprocessable Entity"; case 429:return "Too Many Requests"; case 500:return "Internal Server Error"; case 503:return "Service Unavailable"; default:return "Status"; } }
  bool Write(Conn c,Req r,Resp p,bool close){
    var sb=new StringBuilder(); sb.Append("HTTP/1.1 ").Append(p.Status).Append(' ').Append(G.P("no_reason")?"":Reason(p.Status)).Append("\r\n");
    bool lower=G.P("lower_headers"); Action<string,string> h=(k,v)=>{ sb.Append(lower?k.ToLowerInvariant():G.P("upper_headers")?k.ToUpperInvariant():k).Append(G.P("header_tight")?":":": ").Append(v).Append("\r\n"); };
    bool head=r!=null&&r.Method=="HEAD"; bool sse=p.Sse!=null&&!head; bool chunk=sse&&r!=null&&r.Version!="HTTP/1.0"&&!G.P("sse_close"); if(sse&&!chunk) close=true;
    string type=p.Type; if(type=="application/json"){ if(G.P("json_charset")) type="application/json; charset=utf-8"; if(G.F("json_as_text")) type="text/plain"; if(G.F("error_as_text")&&p.Status>=400) type="text/plain"; }
    byte[] body=p.Body; if(G.F("gzip_unasked")&&r!=null&&p.Status==200&&!sse&&(r.Hdr("accept-encoding")??"").Contains("gzip")&&body.Length>400){ var m=new MemoryStream(); using(var z=new GZipStream(m,CompressionMode.Compress,true)) z.Write(body,0,body.Length); body=m.ToArray(); }
    if(G.P("gzip_ok")&&r!=null&&!sse&&(r.Hdr("accept-encoding")??"").Contains("gzip")&&body.Length>200){ var m=new MemoryStream(); using(var z=new GZipStream(m,CompressionMode.Compress,true)) z.Write(body,0,body.Length); body=m.ToArray(); h("Content-Encoding","gzip"); }
    if(!G.P("date_last")) Date(h); h("Content-Type",type);
    bool fx=G.P("chunk_all")&&!sse&&r!=null&&r.Version!="HTTP/1.0"&&!head;
    if(chunk||fx) h("Transfer-Encoding","chunked"); else if(!sse){ int n=body.Length; if(G.F("length_chars")&&p.Text!=null) n=p.Text.Length; h("Content-Length",n.ToString()); if(n<body.Length) Array.Resize(ref body,n); }
    foreach(var k in p.H) h(k.Key,k.Value); if(p.Status==401&&G.P("www_auth")) h("WWW-Authenticate","Bearer realm=\"fx\""); if(G.P("server_header")) h("Server","fx/15 (mono)"); if(G.P("no_store")) h("Cache-Control","no-store"); if(G.P("cors")) h("Access-Control-Allow-Origin","*"); if(close) h("Connection","close"); else if(r!=null&&r.Version=="HTTP/1.0") h("Connection","keep-alive"); if(G.P("date_last")) Date(h);
    if(G.P("slow")) Thread.Sleep(250);
    sb.Append("\r\n"); var hb=Encoding.ASCII.GetBytes(sb.ToString());
    if(G.F("hang_after_error")&&p.Status==400&&r!=null){ c.Send(hb); if(!head) c.Send(body); return false; }
    if(fx){ c.Send(hb); int o=0; while(o<body.Length){ int n=Math.Min(97,body.Length-o); c.Send(Encoding.ASCII.GetBytes(n.ToString("x")+"\r\n")); var part=new byte[n]; Buffer.BlockCopy(body,o,part,0,n); c.Send(part); c.Send(new byte[]{13,10}); o+=n; } c.Send(Encoding.ASCII.GetBytes("0\r\n\r\n")); }
    else if(!sse){ var all=new byte[hb.Length+(head?0:body.Length)]; Buffer.BlockCopy(hb,0,all,0,hb.Length); if(!head) Buffer.BlockCopy(body,0,all,hb.Length,body.Length); c.Send(all); }
    else { c.Send(hb); var ms=new MemoryStream(); int ev=0; Action flush=()=>{ if(ms.Length==0) return; var d=ms.ToArray(); ms.SetLength(0); if(chunk){ c.Send(Encoding.ASCII.GetBytes(d.Length.ToString("x")+"\r\n")); c.Send(d); c.Send(new byte[]{13,10}); } else c.Send(d); };
      foreach(var e in p.Sse){ var d=G.UL.GetBytes(e); if(G.P("sse_bytes")&&chunk){ for(int i=0;i<d.Length;i+=7){ ms.Write(d,i,Math.Min(7,d.Length-i)); flush(); } } else ms.Write(d,0,d.Length); ev++; if(G.P("sse_slow")&&ev%10==0) Thread.Sleep(15); if(!G.P("sse_batch")) { if(ms.Length>2000||ev<3) flush(); } }
      flush(); if(chunk){ if(G.F("sse_no_end")){ Thread.Sleep(3000); return false; } if(G.F("sse_hold")) Thread.Sleep(8000); c.Send(Encoding.ASCII.GetBytes("0\r\n\r\n")); } }
    return !close; }
  static void Date(Action<string,string> h){ var t=DateTime.UtcNow.AddMilliseconds(999); if(G.F("date_hour")) t=t.AddHours(1); if(G.F("date_slow")) t=t.AddSeconds(-40); h("Date",t.ToString("ddd, dd MMM yyyy HH:mm:ss 'GMT'",G.C)); }
}
public static class Router {
  static int n=0;
  public static Resp Handle(Req r){
    if(G.F("expect_html")&&(r.Hdr("accept")??"").Contains("text/html")) return new Resp{Type="text/html",Body=G.UL.GetBytes("<html><body>node</body></html>")};
    string p=r.Path;
    int k=Interlocked.Increment(ref n); if(G.F("fail_every_40")&&k%40==0) return Resp.J(Obj.O("error",Obj.O("code","INTERNAL","message","try again")),500);
    if(p.StartsWith("/api/v1/")||p=="/api/v1"){ var rs=NodeApi.Handle(r,p.Substring(7)); return rs; }
    if(p=="/api/training/global"||p=="/api/training/verify") return NodeApi.Training(r,p.EndsWith("verify"));
    return Native.Handle(r);
  }
}
}
