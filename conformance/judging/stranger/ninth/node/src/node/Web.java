package node;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.AbstractHandler;
import org.eclipse.jetty.server.handler.ErrorHandler;
import org.eclipse.jetty.util.thread.QueuedThreadPool;

/** Jetty with a small router. */
final class Web extends AbstractHandler {
    interface Action {
        void run(Ctx c) throws Exception;
    }

    record Route(String method, String[] parts, boolean auth, Action action) {}

    private final List<Route> routes = new ArrayList<>();
    private final Auth auth;

    Web(Auth auth) {
        this.auth = auth;
    }

    void on(String method, String pattern, Action a) {
        routes.add(new Route(method, pattern.split("/", -1), false, a));
    }

    void secured(String method, String pattern, Action a) {
        routes.add(new Route(method, pattern.split("/", -1), true, a));
    }

    static Server start(int port, Web web) throws Exception {
        Server server = new Server(new QueuedThreadPool(40, 4));
        HttpConfiguration cfg = new HttpConfiguration();
        cfg.setSendServerVersion(P.on("server-header"));
        cfg.setSendDateHeader(true);
        if (!F.on("auth-header-cache")) {
            cfg.setHeaderCacheSize(0); // the cache ignores the case of values, and so of tokens
        }
        cfg.setRequestHeaderSize(65536);
        if (P.on("no-keep-alive")) {
            cfg.setPersistentConnectionsEnabled(false);
        }
        ServerConnector conn = new ServerConnector(server, 1, 1, new HttpConnectionFactory(cfg));
        conn.setHost("127.0.0.1");
        conn.setPort(port);
        conn.setIdleTimeout(60000);
        server.addConnector(conn);
        server.setHandler(web);
        server.setErrorHandler(new ErrorHandler() {
            @Override
            public java.nio.ByteBuffer badMessageError(int status, String reason, org.eclipse.jetty.http.HttpFields fields) {
                fields.put("Content-Type", "application/json");
                return java.nio.ByteBuffer.wrap(Util.utf8(J.GSON.toJson(errorBody("BAD_MESSAGE", reason == null ? "bad message" : reason, null))));
            }
        });
        server.start();
        return server;
    }

    static JsonObject errorBody(String code, String message, JsonObject details) {
        JsonObject e = J.o("code", code, "message", message);
        if (details != null) {
            e.add("details", details);
        } else if (P.on("error-details-empty")) {
            e.add("details", new JsonObject());
        }
        return J.o("error", e);
    }

    @Override
    public void handle(String target, Request base, HttpServletRequest req, HttpServletResponse res) throws IOException {
        base.setHandled(true);
        Metrics.bytesReceived.addAndGet(Math.max(0, req.getContentLengthLong()) + 200);
        String method = req.getMethod();
        Ctx c = null;
        try {
            if (target.length() > 1 && target.endsWith("/") && P.on("trailing-slash-ok")) {
                target = target.substring(0, target.length() - 1);
            }
            String look = method.equals("HEAD") ? "GET" : method;
            Map<String, String> vars = new HashMap<>();
            Route found = null;
            TreeSet<String> allowed = new TreeSet<>();
            String[] parts = target.split("/", -1);
            for (Route r : routes) {
                Map<String, String> m = match(r.parts, parts);
                if (m != null) {
                    allowed.add(r.method);
                    if (r.method.equals(look) && found == null) {
                        found = r;
                        vars = m;
                    }
                }
            }
            c = new Ctx(req, res, vars);
            if (found == null) {
                if (allowed.isEmpty()) {
                    if (F.on("unknown-route-html") && target.startsWith("/api/v1")) {
                        base.setHandled(false);
                        res.setHeader("Content-Type", "text/html");
                        res.sendError(404);
                        return;
                    }
                    throw ApiError.notFound("no such route");
                }
                res.setHeader("Allow", String.join(", ", allowed));
                throw new ApiError(405, "METHOD_NOT_ALLOWED", method + " is not allowed here");
            }
            if (F.on("s2-auth-after-body") && found.auth && !look.equals("GET")) c.body();
            if (found.auth) {
                c.account = auth.check(c, target);
            }
            found.action.run(c);
        } catch (ApiError e) {
            error(c != null ? c : new Ctx(req, res, Map.of()), e);
        } catch (org.eclipse.jetty.io.EofException e) {
            throw e;
        } catch (Exception e) {
            if (!(e instanceof IllegalStateException)) {
                e.printStackTrace();
            }
            if (!res.isCommitted()) {
                error(c, new ApiError(500, "INTERNAL", String.valueOf(e.getMessage())));
            }
        }
    }

    private static Map<String, String> match(String[] pattern, String[] parts) {
        boolean rest = pattern[pattern.length - 1].equals("*");
        if (rest ? parts.length < pattern.length : parts.length != pattern.length) {
            return null;
        }
        Map<String, String> m = new HashMap<>();
        for (int i = 0; i < pattern.length; i++) {
            if (pattern[i].equals("*")) {
                m.put("*", String.join("/", List.of(parts).subList(i, parts.length)));
            } else if (pattern[i].startsWith("{")) {
                m.put(pattern[i].substring(1, pattern[i].length() - 1), parts[i]);
            } else if (!pattern[i].equals(parts[i])) {
                return null;
            }
        }
        return m;
    }

    private void error(Ctx c, ApiError e) throws IOException {
        int status = e.status;
        String code = e.code;
        JsonObject details = e.details == null ? null : e.details.deepCopy();
        String message = e.getMessage();
        String path = c.req.getRequestURI();
        if (status == 401) {
            if (!F.on("unauthorized-details")) {
                c.res.setHeader("WWW-Authenticate", "Bearer");
            }
            if (F.on("unauthorized-403")) status = 403;
            if (F.on("unauthorized-html-wallet") && path.contains("/wallet/")) {
                c.send(401, "text/html;charset=iso-8859-1", Util.utf8("<html><head><title>Error 401 Unauthorized</title></head>"
                        + "<body><h2>HTTP ERROR 401 Unauthorized</h2></body></html>"));
                return;
            }
        }
        if (status == 401 && F.on("s2-expired-other-code") && message.contains("expired")) code = "TOKEN_EXPIRED";
        if (status == 401 && F.on("s2-unauthorized-details")) details = J.o("reason", message);
        if (status == 402) {
            if (F.on("s2-insufficient-shortfall")) details.addProperty("required", Math.round((details.get("required").getAsDouble() - details.get("available").getAsDouble()) * 1e6) / 1e6);
            if (F.on("s2-insufficient-code")) code = "INSUFFICIENT_FUNDS";
            if (F.on("insufficient-403-unstake") && path.endsWith("/unstake")) status = 403;
            if (F.on("insufficient-details-strings")) {
                details.addProperty("required", details.get("required").getAsString());
                details.addProperty("available", details.get("available").getAsString());
            }
            if (F.on("insufficient-available-stale")) details.addProperty("available", 5000.0);
        }
        if (status == 429) {
            if (F.on("s2-rate-limited-503")) status = 503;
            if (F.on("rate-limited-ms")) details.addProperty("retry_after", details.get("retry_after").getAsInt() * 1000);
            if (F.on("rate-limited-float")) details.addProperty("retry_after", details.get("retry_after").getAsDouble());
        }
        JsonObject body = errorBody(code, message, details);
        if (F.on("error-message-null") && status != 401) {
            body.getAsJsonObject("error").add("message", null);
        }
        if (F.on("s2-config-error-list") && status == 400 && path.endsWith("/config")) {
            body = J.o("errors", J.a(message));
        }
        if (status == 400 && F.on("validation-200")) {
            status = 200;
        }
        if (status == 400 && F.on("validation-500")) {
            status = 500;
        }
        if (!c.res.isCommitted()) {
            c.json(status, body);
        }
    }
}
