/** What a check found out, in words for people: what is so, and what to do about it when that is not as it should be. */
export type Verdict = 'ok' | 'warn' | 'fail';

export interface Finding {
  verdict: Verdict;
  message: string;
  fix?: string;
}

export interface NamedFinding extends Finding {
  check: string;
}

export interface CheckContext {
  /** FUSE_HOME. */
  home: string;
  env: NodeJS.ProcessEnv;
  signal: AbortSignal;
  /** Where the host's files are: `/`, but for tests. */
  root: string;
  /** What runs VMs here, found by booting one; fails when there is no kernel or no VMM to try with. */
  vmm(): Promise<{ name: 'qemu' | 'firecracker'; accelerator: 'kvm' | 'tcg' }>;
}

export interface Check {
  name: string;
  run(context: CheckContext): Promise<Finding>;
}

export const ok = (message: string): Finding => ({ verdict: 'ok', message });
export const warn = (message: string, fix?: string): Finding => withFix('warn', message, fix);
export const fail = (message: string, fix?: string): Finding => withFix('fail', message, fix);

function withFix(verdict: Verdict, message: string, fix: string | undefined): Finding {
  return fix === undefined ? { verdict, message } : { verdict, message, fix };
}
