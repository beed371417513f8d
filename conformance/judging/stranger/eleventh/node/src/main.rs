//! A node with toy contents. See OPERATOR.md.

mod api;
mod auth;
mod chain;
mod ckpt;
mod client;
mod dht;
mod fault;
mod gossip;
mod grpc;
mod http;
mod infer;
mod layers;
mod listing;
mod lz4;
mod native;
mod ops;
mod pages;
mod params;
mod patch;
mod pb;
mod pipe;
mod published;
mod reference;
mod rpc;
mod sign;
mod stakes;
mod state;
mod text;
mod util;
mod wallet;
mod work;

use std::time::{Duration, SystemTime};

fn stop(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(2)
}

async fn blocks() {
    let pause = if fault::odd("blocks-slower") {
        2200
    } else {
        1500
    };
    let mut clock = tokio::time::interval(Duration::from_millis(pause));
    clock.tick().await;
    loop {
        clock.tick().await;
        let at = util::micros(SystemTime::now());
        state::lock(&state::st().chain).tick(at);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().map(|a| a.as_str()) == Some("sign") {
        match sign::command(&args[1..]) {
            Ok(v) => println!("{v}"),
            Err(e) => stop(&e),
        }
        return;
    }
    let mut port = 8000u16;
    let (mut bad, mut odd) = (String::new(), String::new());
    let mut it = args.iter();
    while let Some(a) = it.next() {
        let mut value = || it.next().cloned().unwrap_or_default();
        match a.as_str() {
            "--list" => {
                println!("{}", fault::list());
                return;
            }
            "--port" => {
                port = value()
                    .parse()
                    .unwrap_or_else(|_| stop("a port is a number"))
            }
            "--fault" => bad = value(),
            "--peculiar" => odd = value(),
            _ => stop("usage: node --port P [--fault ID | --peculiar ID] | --list | sign ..."),
        }
    }
    if port == 0 || port > 64_535 {
        stop("the port is from 1 to 64535");
    }
    if let Err(e) = fault::set(&bad, &odd) {
        stop(&e);
    }
    state::init(port);
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async move {
        tokio::spawn(blocks());
        let http = tokio::spawn(http::serve(port));
        let grpc = tokio::spawn(grpc::serve(port + 1000));
        tokio::time::sleep(Duration::from_millis(60)).await;
        if !http.is_finished() && !grpc.is_finished() {
            println!("ready: HTTP on {port}, gRPC on {}", port + 1000);
        }
        let end = tokio::select! { e = http => e, e = grpc => e };
        stop(&format!("{end:?}"));
    });
}
