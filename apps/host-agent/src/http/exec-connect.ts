/** One exec over one connection, frames both ways: packages/host-protocol/src/host.ts, `fuse-exec/1`. */
import { invalidField, TerminalSize } from '@fuse/contract';
import { EXEC_PROTOCOL, VmId } from '@fuse/host-protocol';
import { z } from 'zod';
import { connectExec } from '../execs/connect-exec.ts';
import { ExecId } from '../execs/exec-record.ts';
import { startOfLog } from '../execs/follow-log.ts';
import { LogPlace, placeOf } from './log-place.ts';
import type { HttpParts } from './server.ts';
import type { Upgrades } from './upgrades.ts';

const side = z.coerce.number().pipe(TerminalSize.shape.rows);
const Request = LogPlace.extend({ id: VmId, eid: ExecId, rows: side.optional(), cols: side.optional() });

export function execConnections(upgrades: Upgrades, { vms }: Pick<HttpParts, 'vms'>): void {
  upgrades.on('/v1/vms/:id/execs/:eid/connect', EXEC_PROTOCOL, async ({ params, query, log, signal, accept }) => {
    const asked = parse({ ...Object.fromEntries(query), ...params });
    const vm = vms.get(asked.id);
    const exec = await vm.exec(asked.eid);
    const offset = await startOfLog(exec.log, placeOf(asked));
    const { rows, cols } = asked;
    const size = rows === undefined || cols === undefined ? undefined : { rows, cols };
    const asking = <T>(work: () => Promise<T>): Promise<T> => (exec.running ? vm.withGuest(work) : work());
    await connectExec({ exec, offset, size, log, signal, asking, accept });
  });
}

function parse(values: Record<string, string>): z.infer<typeof Request> {
  const parsed = Request.safeParse(values);
  if (parsed.success) return parsed.data;
  const [problem] = parsed.error.issues;
  throw invalidField(String(problem?.path[0] ?? 'query'), problem?.message ?? 'is not valid');
}
