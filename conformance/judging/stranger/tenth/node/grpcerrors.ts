export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const INTERNAL = 13;

/** A call that ends with this status. */
export class GrpcError extends Error {
  constructor(
    public code: number,
    message: string,
  ) {
    super(message);
  }
}
