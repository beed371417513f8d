//! The operations whose messages the interface leaves open.

use crate::fault::on;
use crate::grpc::{no, Status, INVALID, UNIMPLEMENTED};
use crate::pb::{Msg, Out};
use crate::state::{st, LAYERS, ROUND, TOTAL_LAYERS};
use crate::text::{generate, Params};
use crate::util::rand_hex;
use bytes::Bytes;

/// 1 prompt, 2 max_tokens, 3 an id that is given back.
fn text(m: &Msg) -> Result<(Params, String), Status> {
    let many = m.int32(2);
    if !(0..=1024).contains(&many) {
        return Err(no(INVALID, "max_tokens is from 0 to 1024"));
    }
    let p = Params {
        prompt: m.text(1)?,
        max_tokens: if many == 0 { 16 } else { many as usize },
        temperature: 0.0,
        top_p: 1.0,
        top_k: 1,
        stream: false,
        stops: Vec::new(),
    };
    Ok((p, m.text(3)?))
}

/// The answers to one message of a stream, a piece each.
pub fn pieces(raw: &Bytes) -> Result<Vec<Vec<u8>>, Status> {
    let (p, id) = text(&Msg::read(raw)?)?;
    let made = generate(&p);
    let n = made.pieces.len();
    Ok(made
        .pieces
        .iter()
        .enumerate()
        .map(|(i, t)| {
            Out::default()
                .text(1, t)
                .text(2, &id)
                .num(3, i as i64)
                .flag(4, i + 1 == n)
                .0
        })
        .collect())
}

pub fn answer(name: &str, raw: Bytes) -> Result<Vec<u8>, Status> {
    if on("unlisted-answers-ok") && name == "PutCheckpoint" {
        return Ok(Out::default().flag(1, true).0);
    }
    if on("unlisted-panics") && name.starts_with("Get") && !name.contains("S") {
        return Ok(Vec::new());
    }
    let m = Msg::read(&raw);
    match name {
        "UnaryInference" => {
            let (p, id) = text(&m?)?;
            let made = generate(&p);
            let out = Out::default().text(1, &made.text()).text(2, &id);
            Ok(out.num(3, made.pieces.len() as i64).flag(4, true).0)
        }
        "GossipProof" | "GossipTransaction" | "GossipStake" | "GossipValidationVote" => {
            m?;
            let why = "only what the interface describes is verified here";
            Ok(Out::default().flag(1, false).text(2, why).0)
        }
        "RequestProofValidation" => {
            m?;
            Ok(Out::default().flag(1, false).text(2, "no such proof").0)
        }
        "GetShardInfo" => {
            m?;
            let out = Out::default().text(1, &st().node_id).nums(2, &LAYERS);
            Ok(out.num(3, TOTAL_LAYERS).num(4, ROUND).0)
        }
        "SwarmForward" => {
            m?;
            Ok(Out::default()
                .flag(1, false)
                .text(2, "no swarm is joined")
                .0)
        }
        "GetSwarmStatus" => {
            m?;
            if on("swarm-status-unimplemented") {
                return Err(no(UNIMPLEMENTED, "later"));
            }
            Ok(Out::default().text(1, "quiet").num(2, 3).0)
        }
        "UpdatePeerCapacity" => {
            m?;
            if on("capacity-unknown-status") {
                return Err(no(2, "no peer"));
            }
            Ok(Out::default().flag(1, true).text(2, &rand_hex(4)).0)
        }
        _ => Err(no(UNIMPLEMENTED, "the service has no such operation")),
    }
}
