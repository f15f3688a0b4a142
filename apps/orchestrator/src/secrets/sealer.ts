/** What is secret in the database is sealed: bound to the row and column that it is of, so that nobody can move it elsewhere. */
export interface Sealer {
  /** How all that it seals begins: what begins otherwise is to be sealed anew. */
  readonly prefix: string;
  /** Text that says which key it needs. `context` is what it is of, such as `environments.secrets:UID`. */
  seal(plain: string, context: string): string;
  /** Throws when it was changed, is of another context, or its key is not among ours. */
  open(sealed: string, context: string): string;
}
