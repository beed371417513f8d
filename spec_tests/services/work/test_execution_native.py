"""The execution behind the native API: a paid answer, the model's facts, the artifacts' bytes."""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio

from meshnode.domain.chain.canonical import digest, encode
from meshnode.services.work.provider import Provider, serve_provider
from spec_tests.domain.chain.net import CAROL
from spec_tests.edges.http_server import Answer, Client
from spec_tests.services.ledger.ledgers import SOON_S
from spec_tests.services.signer.signers import start_signer
from spec_tests.services.work.models_chain import (
    infer,
    node_key,
    running_chain,
    serve_gateway,
    shared_execution,
    sponsoring,
)


async def test_a_paid_answer_through_the_gateway(tmp_path: Path) -> None:
    execution = shared_execution()
    async with (
        running_chain(tmp_path / "chain", execution) as ledger,
        sponsoring(ledger, tmp_path / "sponsor", tasks=0) as sponsor,
        trio.open_nursery() as nursery,
    ):
        signer = await start_signer(nursery, ledger, node_key(CAROL), tmp_path / "signer")
        provider = Provider(ledger, execution, signer)
        await nursery.start(serve_provider, provider)
        served = await serve_gateway(nursery, ledger, execution, sponsor)
        where = urlsplit(served.url)

        async def get(path: str) -> Answer:
            stream = await trio.open_tcp_stream(str(where.hostname), int(where.port or 0))
            async with Client(stream) as client:
                answer = await client.ask("GET", path, None, token=None)
            assert answer.status == 200, answer.body
            return answer

        job_id = await infer(ledger, CAROL.key, "A node", tokens=6)
        with trio.fail_after(SOON_S):
            while True:
                job: Any = (await get(f"/api/inference/request?id={job_id}")).json
                if job["status"] == "completed":
                    break
                await trio.sleep(0.02)
        root = execution.genesis_facts().model_root
        assert job["output"] == execution.answer_prompt(root, "A node", 6)
        assert (job["price"], job["provider_paid"]) == ("6000", "4800")

        dataset = (await get("/network/dataset.json")).body
        assert hashlib.sha256(dataset).hexdigest() == ledger.genesis.manifest["dataset_sha256"]
        document = json.loads(dataset)
        assert (
            digest({n: v for n, v in document.items() if n != "dataset_root"})
            == (document["dataset_root"])
        )
        assert encode(document) == dataset
        model: Any = (await get("/api/model")).json
        assert model["model_root"] == model["serving_root"] == root
        assert model["parameter_count"] == (
            model["base_parameter_count"] + model["trainable_parameter_count"]
        )
        assert set(model["execution"]) == {
            "model",
            "optimizer",
            "learning_rate",
            "batch_size",
            "sequence_length",
            "numerics",
            "dataset_sha256",
        }
        checkpoint: Any = (await get("/api/model/checkpoint.json")).json
        assert digest(checkpoint["weights"]) == checkpoint["model_root"] == root
        status: Any = (await get("/work/status")).json
        assert (status["sponsor"], status["workers_by_stage"]) == (None, [0, 0])
        assert set(status) == {
            "chain_id",
            "sponsor",
            "remaining_tasks",
            "active_operations",
            "workers_by_stage",
            "payment",
        }
        nursery.cancel_scope.cancel()
