/** Hosts apart from orchestrators: they join, fall silent and come back, crash, and are lost. Real VMs, real PostgreSQL, real cuts. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Fleet, type FleetHost, type FleetOrchestrator, until } from './support/fleet.ts';
import { whyNoNetwork } from './support/network.ts';

const cannot = await whyNoNetwork();
if (cannot !== undefined) process.stderr.write(`fleet.test.ts is skipped: ${cannot}\n`);

describe.skipIf(cannot !== undefined)('a fleet of three hosts', () => {
  let fleet: Fleet;
  let [one, other] = [] as unknown as [FleetOrchestrator, FleetOrchestrator]; // set before any test
  let [first, second, third] = [] as unknown as [FleetHost, FleetHost, FleetHost]; // so are these
  beforeAll(async () => {
    fleet = await Fleet.open(3);
    [one, other] = fleet.orchestrators as [FleetOrchestrator, FleetOrchestrator];
    [first, second, third] = fleet.hosts as [FleetHost, FleetHost, FleetHost];
  }, 120_000);
  afterAll(async () => {
    if (fleet === undefined) return;
    const { body } = await other.call('GET', '/v1/environments');
    for (const { id } of body.environments) await other.call('DELETE', `/v1/environments/${id}`);
    await fleet[Symbol.asyncDispose]();
  }, 120_000);

  const hostState = async (host: FleetHost): Promise<string | undefined> =>
    (await other.call('GET', `/v1/hosts/${host.id}`)).body.state;
  const untilHostIs = (host: FleetHost, state: string) =>
    until(
      `${host.id} ${state}`,
      () => hostState(host),
      (seen) => seen === state,
    ).catch(async (error: Error) => {
      throw new Error(`${error.message}\n${await fleet.log()}`);
    });
  const create = async (by: FleetOrchestrator, task: string, spec: object = {}) => {
    const answer = await by.call('POST', '/v1/environments', { task_id: task, spec });
    expect([answer.status, answer.body.error?.message]).toEqual([201, undefined]);
    return answer.body as { id: string; host_id: string };
  };
  const exec = async (by: FleetOrchestrator, task: string, shell: string) =>
    (await by.call('POST', `/v1/environments/fuse-${task}?action=exec`, { cmd: ['sh', '-c', shell] })).body;
  const vms = () => Promise.all(fleet.hosts.map((host) => host.vmmPids()));
  /** Of the task that was started on each host first. */
  const tasks = ['on-first', 'on-second', 'on-third'] as const;

  it('joins by token, over TLS', async () => {
    for (const host of fleet.hosts) await untilHostIs(host, 'active');
    const { body } = await one.call('GET', '/v1/hosts/host-1');
    expect(body).toMatchObject({ url: `https://${first.machine.address}:8090`, backend: 'qemu' });
    expect(body.free_storage_gb).toBeGreaterThan(0);
  });

  it('runs environments on each of them, and any orchestrator reaches all', async () => {
    for (const [index, host] of fleet.hosts.entries())
      await create(index % 2 === 0 ? one : other, tasks[index] ?? '', { host_id: host.id });
    for (const task of tasks) expect(await exec(one, task, `echo ${task} > /tmp/who`)).toMatchObject({ exit_code: 0 });
    for (const task of tasks) expect(await exec(other, task, 'cat /tmp/who')).toMatchObject({ stdout: `${task}\n` });
    expect((await vms()).map((pids) => pids.length)).toEqual([1, 1, 1]);
  });

  it('goes on without a host that is cut off, and has it back as it was', async () => {
    const before = await vms();
    await second.machine.cut();
    await untilHostIs(second, 'unreachable');
    const elsewhere = [await create(one, 'elsewhere-1'), await create(other, 'elsewhere-2')];
    expect(elsewhere.map(({ host_id }) => host_id)).not.toContain(second.id);
    const pinned = await one.call('POST', '/v1/environments', { task_id: 'pinned', spec: { host_id: second.id } });
    expect([pinned.status, pinned.body.error.message]).toEqual([503, expect.stringContaining('is not reachable')]);
    expect((await one.call('GET', '/v1/environments/fuse-on-second')).body.state).toBe('running');
    for (const { id } of elsewhere) expect((await one.call('DELETE', `/v1/environments/${id}`)).status).toBe(204);
    await second.machine.mend();
    await untilHostIs(second, 'active');
    expect(await exec(other, 'on-second', 'cat /tmp/who')).toMatchObject({ stdout: 'on-second\n' });
    expect(await vms()).toEqual(before);
  });

  it('keeps its VMs when a host agent is killed, and hears of it again', async () => {
    const before = await vms();
    await third.end('SIGKILL');
    third.start();
    const answered = () => exec(one, 'on-third', 'cat /tmp/who');
    await until('an answer of the VM', answered, (body) => body?.stdout === 'on-third\n');
    expect(await vms()).toEqual(before);
    expect(await third.log()).toContain('joined the fleet');
  });

  it('is reconciled by another orchestrator once one is killed, and gives up a host that is declared lost', async () => {
    await one.end('SIGKILL');
    expect((await other.call('POST', '/v1/hosts/host-1?action=lost')).status).toBe(409);
    await first.machine.cut();
    await untilHostIs(first, 'unreachable');
    expect((await other.call('POST', '/v1/hosts/host-1?action=lost')).status).toBe(204);
    expect((await other.call('GET', '/v1/hosts/host-1')).body).toMatchObject({
      state: 'lost',
      allocated: { cpus: 0, vm_count: 0 },
    });
    const again = await create(other, 'on-first');
    expect(again.host_id).not.toBe(first.id);
    expect((await first.vmmPids()).length).toBe(1);
    await first.machine.mend();
    await until(
      'the end of its VM',
      () => first.vmmPids(),
      (pids) => pids.length === 0,
    );
    expect(await exec(other, 'on-first', 'cat /tmp/who || echo new')).toMatchObject({ stdout: 'new\n' });
    expect(await hostState(first)).toBe('lost');
    expect((await other.call('POST', '/v1/hosts/host-1?action=uncordon')).status).toBe(204);
    expect((await create(other, 'back', { host_id: first.id })).host_id).toBe(first.id);
  });
});
