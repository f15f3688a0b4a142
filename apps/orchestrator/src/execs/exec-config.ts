/** What an operator may set about execs. */
export interface ExecConfig {
  /** How long execs can be read once their environment is gone. */
  retentionMs: number;
  collectEveryMs: number;
}

export const defaultExecConfig: ExecConfig = { retentionMs: 7 * 86_400_000, collectEveryMs: 60_000 };
