/** What the query of an attach says. Sizes that are none are ignored, as published clients expect; everything else is refused by name. */
import {
  AppError,
  Argv,
  AttachOptions,
  DEFAULT_SCROLLBACK_BYTES,
  DEFAULT_TERMINAL_SIZE,
  MAX_SCROLLBACK_BYTES,
} from '@fuse/contract';
import { invalidInput } from '../http/validation.ts';

export function requireTty(query: URLSearchParams): void {
  if (!['1', 'true'].includes(query.get('tty') ?? ''))
    throw new AppError('invalid_argument', 'attach requires tty=1; use ?action=exec for non-interactive commands', {
      details: { field: 'tty' },
    });
}

export function attachOptions(query: URLSearchParams): AttachOptions {
  const given = (name: string) => {
    const value = query.get(name);
    return value === null || value === '' ? {} : { [name]: value };
  };
  const cmd = query.getAll('cmd');
  const parsed = AttachOptions.safeParse({
    ...given('session'),
    ...given('user'),
    ...given('cwd'),
    size: {
      rows: sideOf(query.get('rows')) ?? DEFAULT_TERMINAL_SIZE.rows,
      cols: sideOf(query.get('cols')) ?? DEFAULT_TERMINAL_SIZE.cols,
    },
    cmd: cmd.length === 0 ? [] : checkedArgv(cmd),
    scrollbackBytes: Math.min(Number(query.get('scrollback') ?? DEFAULT_SCROLLBACK_BYTES), MAX_SCROLLBACK_BYTES),
  });
  if (!parsed.success) throw invalidInput(parsed.error);
  return parsed.data;
}

function sideOf(text: string | null): number | undefined {
  const value = /^\d{1,5}$/.test(text ?? '') ? Number(text) : 0;
  return value >= 1 && value <= 65_535 ? value : undefined;
}

function checkedArgv(cmd: string[]): string[] {
  const parsed = Argv.safeParse(cmd);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new AppError('invalid_argument', `cmd: ${issue?.message ?? 'invalid'}`, { details: { field: 'cmd' } });
}
