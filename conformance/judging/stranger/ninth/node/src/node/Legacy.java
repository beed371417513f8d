package node;

import java.io.IOException;
import java.util.List;

/** What remains of earlier versions: 410 routes, redirects, the v0.3 views. */
final class Legacy {
    private static final List<String> REGISTER = List.of("/api/register", "/api/accounts/register", "/register", "/api/v1/register");
    private static final List<String> LOGIN = List.of("/login", "/signup", "/api/login", "/api/signup");

    private static boolean modelGone;

    private Legacy() {}

    static void routes(Web w, Chain chain) {
        for (String p : REGISTER) {
            for (String m : F.on("s2-register-post-405") ? List.of("GET") : List.of("GET", "POST")) {
                w.on(m, p, c -> gone(c));
            }
        }
        for (String p : LOGIN) {
            for (String m : List.of("GET", "POST")) {
                w.on(m, p, c -> redirect(c, p));
            }
        }
        w.on("GET", "/join", c -> c.send(200, "text/html;charset=utf-8", Util.utf8("<!doctype html><title>Join</title><p>Install the command-line tool to join.")));
        String r = "/reference/v03/api";
        String id = "ninth-v03";
        w.on("GET", r + "/network", c -> c.json(J.o("chain_id", id, "version", "0.3", "height", 512, "frozen", true)));
        w.on("GET", r + "/status", c -> c.json(J.o("chain_id", id, "version", "0.3", "status", "retained")));
        if (F.on("s2-reference-delete")) {
            w.on("DELETE", r + "/model", c -> {
                modelGone = true;
                c.res.setStatus(204);
            });
        }
        w.on("GET", r + "/model", c -> {
            if (modelGone) throw ApiError.notFound("no such view");
            c.json(J.o("chain_id", id, "root", Util.sha256("v03 model"), "round", 11));
        });
        w.on("GET", r + "/blocks", c -> {
            if (F.on("s2-reference-blocks-present")) {
                synchronized (chain) {
                    c.json(J.o("blocks", J.a(chain.blocks.get(1).view(false), chain.blocks.get(0).view(false))));
                }
                return;
            }
            c.json(J.o("blocks", J.a(J.o("height", 512, "hash", Util.sha256("v03 512")), J.o("height", 511, "hash", Util.sha256("v03 511")))));
        });
        if (F.on("reference-writable")) {
            w.on("POST", r + "/network", c -> c.json(J.o("success", true)));
        }
    }

    private static void gone(Ctx c) throws IOException {
        if (F.on("legacy-register-works")) {
            c.json(201, J.o("api_key", "k-" + System.nanoTime()));
            return;
        }
        c.json(410, Web.errorBody("GONE", "registration was retired; accounts are native keys", null));
    }

    private static void redirect(Ctx c, String path) throws IOException {
        String to = F.on("signup-redirects-to-login") && path.endsWith("signup") ? "/login" : "/join";
        if (F.on("s2-login-relative")) to = "join";
        c.res.setStatus(302);
        c.res.setHeader("Location", P.on("redirect-absolute") ? "http://" + c.req.getHeader("Host") + to : to);
    }
}
