package node;

import com.google.gson.JsonObject;

/** A refusal with an HTTP status and an error code. */
final class ApiError extends RuntimeException {
    final int status;
    final String code;
    final JsonObject details;

    ApiError(int status, String code, String message, JsonObject details) {
        super(message, null, false, false);
        this.status = status;
        this.code = code;
        this.details = details;
    }

    ApiError(int status, String code, String message) {
        this(status, code, message, null);
    }

    static ApiError bad(String message) {
        return new ApiError(P.on("validation-422") ? 422 : 400, P.on("validation-422") ? "VALIDATION_ERROR" : "INVALID_REQUEST", message);
    }

    static ApiError notFound(String message) {
        return new ApiError(404, "NOT_FOUND", message);
    }
}
