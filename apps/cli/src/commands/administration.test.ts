/** Commands of operators: what they ask, and what they print. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AnsweringServer, type Answers, fuse as runFuse } from '../test-fuse.ts';

const AT = '2026-01-01T00:00:00Z';
const capacity = { cpus: 8, ram_mb: 4096, storage_gb: 100, vm_count: 20 };
const allocated = { cpus: 2, ram_mb: 512, storage_gb: 4, vm_count: 1 };
const times = { created_at: AT, updated_at: AT };
const gpus = {
  ...{ gpus: 2, gpu_kind: 'NVIDIA A100', mig_profiles: { '7g.80gb': 9 } },
  gpu_devices: [{ pci_bus_id: '0000:65:00.0', uuid: 'GPU-0', model: 'NVIDIA A100' }, { uuid: 'GPU-1' }],
  mig_instances: ['m1', 'm2'].map((uuid) => ({ uuid, profile: '1g.10gb' })),
};
const held = { gpus: 1, mig_profiles: { '1g.10gb': 1 }, mig_instance_uuids: ['m1'] };
const host = { id: 'h1', url: 'http://10.0.0.7:8090', state: 'active', capacity, allocated, last_seen: AT, ...times };
const environment = { id: 'fuse-a', state: 'running', task_id: 'a', url: '', spec: {}, ...times };
const USED = {
  ...{ environments: 0, cpus: 0, ram_mb: 0, storage_gb: 0, creates_per_minute: 0 },
  ...{ snapshot_bytes: 0, output_bytes: 0 },
};
const tenant = { id: 'acme', label: 'Acme', quotas: { cpus: 4 }, disabled: false, ...times };
const waiting = { ...tenant, usage: { used: { ...USED, cpus: 2 }, waiting: { environments: 2, runs: 1, since: AT } } };
const idle = { ...tenant, id: 'idle', quotas: {}, usage: { used: USED, waiting: { environments: 0, runs: 0 } } };
const key = { id: 'ak_1', label: 'ci', created_at: AT, tenant_id: 'acme', scopes: ['runs'] };
const used = {
  ...{ environments: 1, cpus: 2, ram_mb: 3, storage_gb: 4, creates_per_minute: 0 },
  ...{ snapshot_bytes: 2_147_483_648, output_bytes: 0 },
};
const usage = { tenant_id: 'acme', used, quotas: { cpus: 4, snapshot_bytes: 0 }, at: AT };
const consumed = { vcpu_seconds: 5400, gib_seconds: 1800, stored_byte_seconds: 0, egress_bytes: 1024 };
const entry = {
  ...{ id: '7', at: AT, tenant_id: 'acme', actor_kind: 'api_key', actor: 'ak_1', method: 'POST' },
  ...{ route: 'POST /v1/runs', status: 403, code: 'unauthorized', request_id: 'req_1' },
};
const placement = {
  host_id: 'h1',
  at: AT,
  hosts: [
    { host_id: 'h1', score: 9 },
    { host_id: 'h2', reason: 'is cordoned, not active' },
  ],
};
const PORTS = [
  { from: 80, to: 80 },
  { from: 443, to: 443 },
];
const policy = { egress: 'allowlist', allow: [{ host: 'pypi.org', ports: PORTS }], deny: [] };
const connection = { at: AT, protocol: 'tls', sent_bytes: 2_048, received_bytes: 0, count: 1, port: 443 };
const network = {
  ...{ policy, tenant_max: { egress: 'internet', allow: [], deny: [] }, sent_bytes: 2_048, received_bytes: 0 },
  ...{ allowed_count: 1, refused_count: 2 },
  connections: [
    { ...connection, sent_bytes: 0, name: 'e\u0007.example', verdict: 'refused', reason: 'not_allowed', count: 2 },
    { ...connection, name: 'pypi.org', address: '192.0.2.7', verdict: 'allowed' },
  ],
};

let home: string;
let server: AnsweringServer;
beforeAll(async () => {
  server = await AnsweringServer.start();
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'fuse-cli-'));
  server.heard.length = 0;
});
afterEach(() => rm(home, { recursive: true }));

const alone = () => ({ XDG_CONFIG_HOME: home, FUSE_HOME: home });
const fuse = (args: readonly string[], answers: Answers, env: Record<string, string> = { FUSE_URL: server.url }) => {
  server.answers = answers;
  return runFuse(args, { ...alone(), ...env });
};
const args = (line: string) => line.split(' ');

/** What is typed, what is asked, with which body, the answer, and what stdout and stderr hold. */
type Case = [string, string, unknown, Answers[string], string | RegExp, (string | RegExp)?];
const environmentQuery = (query: string) => `GET /v1/environments${query}`;
const text: Case[] = [
  [
    'hosts',
    'GET /v1/hosts',
    undefined,
    { body: { hosts: [host] } },
    /^ID +STATE .*\nh1 +active +2\/8 +512\/4096 +4\/100 +1\/20 +\d+ d +http/,
  ],
  [
    'host list --limit 1',
    'GET /v1/hosts?limit=1',
    undefined,
    { body: { hosts: null, next_cursor: 'n' } },
    '',
    'no hosts\nthere are more: --cursor n, or --all-pages\n',
  ],
  ['hosts ls --all-pages', 'GET /v1/hosts?limit=200', undefined, { body: { hosts: [] } }, '', 'no hosts\n'],
  [
    'hosts get h1',
    'GET /v1/hosts/h1',
    undefined,
    { body: { ...host, state: 'unreachable', desired_state: 'cordoned' } },
    /^state +unreachable \(chosen: cordoned\)$/m,
  ],
  ['hosts cordon h1', 'POST /v1/hosts/h1?action=cordon', undefined, 204, '', 'h1 cordoned\n'],
  ['hosts uncordon h1', 'POST /v1/hosts/h1?action=uncordon', undefined, 204, '', 'h1 active\n'],
  ['hosts drain h1', 'POST /v1/hosts/h1?action=drain', undefined, 204, '', 'h1 draining\n'],
  ['hosts probe h1', 'POST /v1/hosts/h1?action=probe', undefined, { body: host }, /^vms +1\/20$/m],
  [
    'hosts get g1',
    'GET /v1/hosts/g1',
    undefined,
    { body: { ...host, id: 'g1', capacity: { ...capacity, ...gpus }, allocated: { ...allocated, ...held } } },
    /^gpus +1\/2 NVIDIA A100\nmig +1g.10gb 1\/2\ndevices +0000:65:00.0 NVIDIA A100; GPU-1$/m,
  ],
  ['hosts lost h1 --yes --force', 'POST /v1/hosts/h1?action=lost&force=true', undefined, 204, '', 'h1 lost\n'],
  ['host rm h1 -y', 'DELETE /v1/hosts/h1', undefined, 204, '', 'h1 removed\n'],
  [
    'hosts metrics h1',
    'GET /v1/hosts/h1',
    undefined,
    { body: host },
    /^h1 \(active\) +RESERVED +CAPACITY\ncpus +2 +8\n/,
  ],
  [
    'hosts join-token --uses 2 --expires 10m --label a=b',
    'POST /v1/host-join-tokens',
    { uses: 2, expires_in_seconds: 600, labels: { a: 'b' } },
    { status: 201, body: { token: 'fuse_join_1', uses: 2, expires_at: AT } },
    'fuse_join_1\n',
    `good for 2 hosts, until ${AT}\n`,
  ],
  [
    'hosts register h1 --url http://h --token t --cpus 4 --max-vms 9 --mig-profile 1g.10gb=2 --label a=b',
    'POST /v1/hosts',
    {
      id: 'h1',
      url: 'http://h',
      token: 't',
      labels: { a: 'b' },
      capacity: { cpus: 4, vm_count: 9, mig_profiles: { '1g.10gb': 2 } },
    },
    { status: 201, body: { ...host, warnings: ['too much'] } },
    /^id +h1$/m,
    'warning: too much\n',
  ],
  [
    'tenants create acme --label Acme --quota cpus=4 --quota snapshot_bytes=2G',
    'POST /v1/tenants',
    { id: 'acme', label: 'Acme', quotas: { cpus: 4, snapshot_bytes: 2_147_483_648 } },
    { status: 201, body: tenant },
    /^quotas +cpus=4$/m,
  ],
  ['tenants list', 'GET /v1/tenants', undefined, { body: { tenants: [tenant] } }, /\nacme +Acme +active +cpus=4 +2026/],
  [
    'tenant get acme',
    'GET /v1/tenants/acme',
    undefined,
    { body: { ...tenant, quotas: {}, disabled: true } },
    /^state +disabled\nquotas +none$/m,
  ],
  [
    'tenants update acme --disable --quota cpus=none',
    'PATCH /v1/tenants/acme',
    { disabled: true, quotas: { cpus: null } },
    { body: tenant },
    /^id +acme$/m,
  ],
  [
    'tenant usage',
    'GET /v1/tenants?limit=200&include=usage',
    undefined,
    { body: { tenants: [waiting, idle] } },
    /^ID +ENVIRONMENTS +CPUS .*WAITING\nacme +0 +2\/4 +0 .* 3 *\nidle +0 +0 +0 .* 0 *\n$/,
  ],
  [
    'queue',
    'GET /v1/tenants?limit=200&include=usage',
    undefined,
    { body: { tenants: [waiting, idle] } },
    /^TENANT +ENVIRONMENTS +RUNS +SINCE\nacme +2 +1 +2026-01-01T00:00:00Z\n$/,
  ],
  ['queue', 'GET /v1/tenants?limit=200&include=usage', undefined, { body: { tenants: [idle] } }, '', 'nothing waits\n'],
  ['tenants disable acme', 'PATCH /v1/tenants/acme', { disabled: true }, { body: tenant }, /^id +acme$/m],
  ['tenants enable acme', 'PATCH /v1/tenants/acme', { disabled: false }, { body: tenant }, /^id +acme$/m],
  ['tenants delete acme --yes', 'DELETE /v1/tenants/acme', undefined, 204, '', 'acme deleted\n'],
  [
    'quotas set acme cpus=8 ram_mb=none',
    'PATCH /v1/tenants/acme',
    { quotas: { cpus: 8, ram_mb: null } },
    { body: tenant },
    /^id +acme$/m,
  ],
  [
    'quotas',
    'GET /v1/usage',
    undefined,
    { body: usage },
    /^TENANT acme +USED +LIMIT\nenvironments +1 +none\ncpus +2 +4\n[\s\S]*\nmax_run_seconds +none\nsnapshot_bytes +2\.0 GiB +0 B\n/,
  ],
  [
    'usage',
    'GET /v1/usage',
    undefined,
    { body: usage },
    /^tenant +acme\nenvironments +1\n[\s\S]*\nsnapshot_bytes +2\.0 GiB\n/,
  ],
  [
    'usage --from 2026-01-01 --to 2026-01-02T00:00:00Z',
    'GET /v1/usage/history?from=2026-01-01T00%3A00%3A00.000Z&to=2026-01-02T00%3A00%3A00.000Z',
    undefined,
    { body: { tenant_id: 'acme', from: AT, to: AT, hours: [{ hour: AT, ...consumed }], total: consumed } },
    /\ntotal +1\.500 +0\.500 +0\.000 +1\.0 KiB\n$/,
  ],
  [
    'apikeys create --label ci --scope runs,files --scope runs --expires 1h',
    'POST /v1/api-keys',
    { label: 'ci', scopes: ['runs', 'files'], expires_in_seconds: 3600 },
    { status: 201, body: { ...key, key: 'fuse_sk_1' } },
    /^id +ak_1\nkey +fuse_sk_1\n/,
    'keep the key: it is not shown again\n',
  ],
  [
    'keys ls',
    'GET /v1/api-keys',
    undefined,
    { body: { api_keys: [key, { ...key, id: 'ak_0', scopes: undefined, revoked_at: AT }] } },
    /\nak_1 +good +ci +acme +runs +never .*\nak_0 +revoked +ci +acme +plain +never /,
  ],
  ['apikey revoke ak_1 --yes', 'DELETE /v1/api-keys/ak_1', undefined, 204, '', 'ak_1 revoked\n'],
  [
    'audit --status 403 --target x --limit 2',
    'GET /v1/audit?target=x&status=403&limit=2',
    undefined,
    { body: { entries: [entry], next_cursor: 'n' } },
    /^AT .*\n2026.* +acme +api_key ak_1 +POST \/v1\/runs +403 +unauthorized\n$/,
    /--cursor n/,
  ],
  [
    'audit --export --actor ak_1',
    'GET /v1/audit?actor=ak_1&format=ndjson',
    undefined,
    { body: `${JSON.stringify(entry)}\n` },
    `${JSON.stringify(entry)}\n`,
  ],
  ['metrics', 'GET /metrics', undefined, { body: 'a 1\n# b\n' }, 'a 1\n# b\n'],
  [
    'env list --tag a=b --tag c=d',
    environmentQuery('?label=a%3Db&label=c%3Dd'),
    undefined,
    { body: { environments: [environment] } },
    /\nfuse-a +running +a /,
  ],
  [
    'env list --all-tenants --host-id h1',
    environmentQuery('?host_id=h1&all_tenants=true'),
    undefined,
    { body: { environments: [{ ...environment, tenant_id: 'acme' }] } },
    /^TENANT +ID .*\nacme +fuse-a +running +a /,
  ],
  ['tenants', 'GET /v1/tenants', undefined, { body: { tenants: [tenant] } }, /\nacme +Acme +active +cpus=4 +2026/],
  ['apikeys', 'GET /v1/api-keys', undefined, { body: { api_keys: [key] } }, /\nak_1 +good +ci /],
  ['runs --limit 2', 'GET /v1/runs?limit=2', undefined, { body: { runs: [] } }, '', 'no runs\n'],
  [
    'env drain fuse-a',
    'POST /v1/environments/fuse-a?action=drain',
    undefined,
    { body: environment },
    '',
    'fuse-a draining\n',
  ],
  [
    'env rotate fuse-a',
    'POST /v1/environments/fuse-a?action=rotate-token',
    undefined,
    204,
    '',
    'fuse-a has another token\n',
  ],
  [
    'env update fuse-a --expires 1h --idle-timeout 0 --no-auto-resume --tag a=b',
    'PATCH /v1/environments/fuse-a',
    { expires_in_seconds: 3600, idle_timeout_seconds: 0, auto_resume: false, labels: { a: 'b' } },
    { body: { ...environment, labels: { a: 'b' } } },
    /^tags +a=b$/m,
  ],
  [
    'env update fuse-a --no-tags',
    'PATCH /v1/environments/fuse-a',
    { labels: {} },
    { body: environment },
    /^id +fuse-a$/m,
  ],
  [
    'env placement fuse-a',
    'GET /v1/environments/fuse-a/placement',
    undefined,
    { body: placement },
    /^ +HOST +SCORE +WHY NOT\n\* +h1 +9\n +h2 +is cordoned, not active\n$/,
  ],
  [
    'env network fuse-a',
    'GET /v1/environments/fuse-a/network',
    undefined,
    { body: network },
    /^policy +allowlist; allow pypi\.org:80,443\ntenant max +internet\nsent +2\.0 KiB\n[\s\S]*\n2026\S+ +refused +e\\u\{7\}\.example +443 +tls +0 B +0 B +2 +not_allowed\n2026\S+ +open +pypi\.org +192\.0\.2\.7 +443 /,
  ],
  [
    'tenants update acme --network-max internet --no-network-default',
    'PATCH /v1/tenants/acme',
    { network_max: { egress: 'internet' }, network_default: null },
    { body: { ...tenant, network_max: policy } },
    /^network max +allowlist; allow pypi\.org:80,443$/m,
  ],
  [
    'env create --task-id a --egress internet --deny *.example.com --deny 203.0.113.0/24',
    'POST /v1/environments',
    { task_id: 'a', spec: {}, network: { egress: 'internet', deny: ['*.example.com', '203.0.113.0/24'] } },
    { body: { ...environment, network: policy } },
    /^network +allowlist; allow pypi\.org:80,443$/m,
    /^starting|^$/,
  ],
  [
    'computer click fuse-a 3 4',
    'POST /v1/environments/fuse-a/computer',
    { action: 'left_click', coordinate: [3, 4] },
    { body: {} },
    '',
    'done\n',
  ],
  [
    'computer type fuse-a two words',
    'POST /v1/environments/fuse-a/computer',
    { action: 'type', text: 'two words' },
    { body: { output: 'typed' } },
    '',
    'typed\n',
  ],
  [
    'computer key fuse-a ctrl+s',
    'POST /v1/environments/fuse-a/computer',
    { action: 'key', text: 'ctrl+s' },
    { body: {} },
    '',
    'done\n',
  ],
  [
    'computer screenshot fuse-a --out -',
    'POST /v1/environments/fuse-a/computer',
    { action: 'screenshot' },
    { body: { screenshot: Buffer.from('png').toString('base64') } },
    'png',
  ],
];

describe('what people read', () => {
  it.each(text)('fuse %s', async (line, asked, sent, answer, stdout, stderr = '') => {
    const said = await fuse(args(line), { [asked]: answer });
    const matching = (wanted: string | RegExp) => (typeof wanted === 'string' ? wanted : expect.stringMatching(wanted));
    expect(said).toEqual({ code: 0, stdout: matching(stdout), stderr: matching(stderr) });
    expect(server.heard.map(({ line: each, body }) => [each, body])).toEqual([[asked, sent]]);
  });
});

/** Typed, asked, answered, and the value that is printed where it is not the answer itself. */
const jsons: [string, string, unknown, unknown?][] = [
  ['hosts', 'GET /v1/hosts', { hosts: [host], next_cursor: 'n' }],
  ['hosts list', 'GET /v1/hosts', { hosts: null }, { hosts: [] }],
  ['hosts metrics h1', 'GET /v1/hosts/h1', host, { host_id: 'h1', state: 'active', capacity, allocated }],
  ['env list', 'GET /v1/environments', { environments: [environment] }],
  ['tenants list', 'GET /v1/tenants', { tenants: [tenant] }],
  ['apikeys list', 'GET /v1/api-keys', { api_keys: [key] }, [key]],
  ['quotas', 'GET /v1/usage', usage, { tenant_id: 'acme', quotas: usage.quotas, used }],
  ['audit', 'GET /v1/audit', { entries: [entry] }],
  ['env placement fuse-a', 'GET /v1/environments/fuse-a/placement', placement],
  ['env network fuse-a', 'GET /v1/environments/fuse-a/network', network],
  ['computer screenshot fuse-a', 'POST /v1/environments/fuse-a/computer', { screenshot: 'AAAA' }],
];

describe('what programs read', () => {
  it.each(jsons)('fuse %s -o json', async (line, asked, body, printed = body) => {
    const said = await fuse([...args(line), '-o', 'json'], { [asked]: { body } });
    expect([said.code, said.stderr, JSON.parse(said.stdout)]).toEqual([0, '', printed]);
    expect(said.stdout).toBe(`${JSON.stringify(JSON.parse(said.stdout), null, 2)}\n`);
  });
});

it('fuse env network changes a policy, shows what is so then, and follows refusals', async () => {
  const of = '/v1/environments/fuse-a';
  const answers = { [`PATCH ${of}`]: { body: environment }, [`GET ${of}/network`]: { body: network } };
  expect((await fuse(args('env network fuse-a --allow pypi.org --allow *.npmjs.org:443'), answers)).code).toBe(0);
  expect((await fuse(['env', 'network', 'fuse-a', '--set', '{"egress":"none"}'], answers)).code).toBe(0);
  expect(server.heard.map(({ line, body }) => [line, body])).toEqual([
    [`PATCH ${of}`, { network: { egress: 'allowlist', allow: ['pypi.org', '*.npmjs.org:443'] } }],
    [`GET ${of}/network`, undefined],
    [`PATCH ${of}`, { network: { egress: 'none' } }],
    [`GET ${of}/network`, undefined],
  ]);
  for (const [line, problem] of [
    ['env network fuse-a --deny pypi.org', /--deny says what is left out/],
    ['env network fuse-a --set open', /Write none, allowlist, internet, or JSON/],
    ['env network fuse-a --egress open', /Allowed choices are none, allowlist, internet/],
  ] as const)
    expect(await fuse(args(line), answers)).toMatchObject({ code: 1, stderr: expect.stringMatching(problem) });
  const [listed] = network.connections;
  const told = [
    { ...eventOf('state') },
    { ...eventOf('network'), network: { ...listed, count: 1 } },
    {
      ...eventOf('network'),
      network: { ...connection, name: 'e.example', verdict: 'refused', reason: 'denied', count: 3, missed: 4 },
    },
    { ...eventOf('state'), state: 'destroyed' },
  ];
  const body = told.map((event) => `id: ${event.id}\ndata: ${JSON.stringify(event)}\n\n`).join('');
  const { stdout } = await fuse(args('env network fuse-a --follow'), { ...answers, [`GET ${of}/events`]: { body } });
  expect(stdout.match(/^2026\S+ {2}refused \S/gm)).toHaveLength(1);
  expect(stdout).toMatch(
    /\n2026\S+ {2}refused e\.example:443 {2}tls {2}denied {2}3 times {2}4 before it are not told\n$/,
  );

  function eventOf(event: string) {
    return { id: '0'.repeat(32), event, vm_id: 'fuse-a', state: 'running', updated_at: AT };
  }
});

describe('failures', () => {
  const refusal = (status: number, code: string, more: object = {}) => ({
    status,
    body: { error: { code, message: 'so', ...more } },
  });
  it.each([
    [refusal(404, 'not_found'), 'not found: so\n'],
    [refusal(409, 'conflict'), 'conflict: so\n'],
    [refusal(401, 'unauthorized'), 'unauthorized: so\n'],
    [refusal(403, 'forbidden'), 'forbidden: so\n'],
    [refusal(403, 'unauthorized', { details: { scope: 'hosts:read' } }), /^forbidden: so\nhint: .*--scope hosts:read /],
    [refusal(400, 'invalid_argument', { hint: 'x' }), 'invalid argument: so\nhint: x\n'],
    [refusal(503, 'unavailable'), 'unavailable: so\n'],
    [
      refusal(429, 'quota_exceeded', { details: { quota: 'cpus', limit: '4', used: '4' } }),
      /^quota exceeded: so\nhint: `fuse quotas`/,
    ],
    [refusal(500, 'internal'), 'so (request id: req_1)\n'],
    [refusal(404, 'route_not_found'), /^so \(request id: req_1\)\nhint: is this the orchestrator\?/],
  ])('%o', async (answer, stderr) => {
    const said = await fuse(['hosts', 'get', 'h1'], { 'GET /v1/hosts/h1': answer });
    const wanted = typeof stderr === 'string' ? stderr : expect.stringMatching(stderr);
    expect(said).toEqual({ code: 1, stdout: '', stderr: wanted });
  });

  it.each([
    ['hosts remove h1', 'aborted (use --yes to skip confirmation)\n'],
    ['hosts lost h1', 'aborted (use --yes to skip confirmation)\n'],
    ['apikeys revoke ak_1', 'aborted (use --yes to skip confirmation)\n'],
    ['tenants delete acme', 'aborted (use --yes to skip confirmation)\n'],
    ['hosts register h1 --url http://h', /^invalid argument: a host agent asks for a token\nhint: /],
    ['hosts metrics', /^invalid argument: which host\?\nhint: /],
    ['env update fuse-a', /^invalid argument: nothing to change\nhint: /],
    ['tenants update acme', /^invalid argument: nothing to change\nhint: /],
    ['quickstart', /needs a terminal\nhint: /],
    ['quotas set acme cpu=1', /^invalid argument: .*"cpu" is no quota; there are environments, cpus, ram_mb/],
    ['quotas set acme cpus', /cpus=VALUE/],
    ['quotas set acme cpus=1.5', /whole number/],
    ['apikeys create --scope everything', /is none of environments:read/],
    ['usage --from yesterday', /^invalid argument: .*2026-01-31T12:00:00Z/],
    ['computer click fuse-a 3 -1', /./],
    ['env create --secret NOWHERE', /NOWHERE is not set here/],
  ])('fuse %s', async (line, stderr) => {
    const { code, stdout, stderr: said } = await fuse(args(line), {});
    expect([code, stdout, server.lines]).toEqual([1, '', []]);
    expect(said).toMatch(stderr);
  });
});

describe('whom commands talk to', () => {
  const hosts = { 'GET /v1/hosts?limit=1': { body: { hosts: [] } }, 'GET /v1/hosts/h1': { body: host } };
  const version = { 'GET /v1/version': { body: { service: 'fuse-orchestrator', version: '1' } } };
  const connect = (...more: string[]) => args(`connect ${server.url} --name c`).concat(more);

  it('is asked for its version and its hosts before it is remembered; only a token that is refused is', async () => {
    const hostsLine = 'GET /v1/hosts?limit=1';
    const refused = (status: number, code: string) => ({
      ...version,
      [hostsLine]: { status, body: { error: { code, message: 'invalid token' } } },
    });
    const no = await fuse(connect('--token', 't'), refused(401, 'unauthorized'), {});
    expect([no.code, no.stderr]).toEqual([1, 'unauthorized: invalid token\n']);
    expect(server.lines).toEqual(['GET /v1/version', hostsLine]);
    const stranger = await fuse(connect(), { 'GET /v1/version': { body: { service: 'x', version: '1' } } }, {});
    expect([stranger.code, stranger.stderr]).toEqual([1, expect.stringContaining('is not a Fuse orchestrator')]);
    for (const answers of [{ ...version, ...hosts }, refused(403, 'unauthorized'), refused(500, 'internal')])
      expect((await fuse(connect('--token', 't'), answers, {})).code).toBe(0);
  });

  it('is asked for the tenant, too, and for what became of an environment', async () => {
    const hostsLine = 'GET /v1/hosts?limit=1';
    const refused = (status: number, error: object) => ({ ...version, [hostsLine]: { status, body: { error } } });
    const acting = connect('--token', 't', '--tenant', 'nosuch');
    const none = await fuse(acting, refused(404, { code: 'not_found', message: 'tenant nosuch not found' }), {});
    expect([none.code, none.stderr]).toEqual([1, 'not found: tenant nosuch not found\n']);
    expect(server.heard.at(-1)?.headers['fuse-tenant']).toBe('nosuch');
    const foreign = await fuse(acting, refused(403, { code: 'unauthorized', message: 'another tenant' }), {});
    expect(foreign.code).toBe(1);
    const scoped = { code: 'unauthorized', message: 'no', details: { scope: 'hosts:read' } };
    expect((await fuse(acting, refused(403, scoped), {})).code).toBe(0);
    const details = { state: 'failed', error: 'host lost', ended_at: AT };
    const refusedSnapshot = {
      status: 404,
      body: { error: { code: 'not_found', message: 'snapshot mine not found' } },
    };
    const gone = { status: 404, body: { error: { code: 'not_found', message: 'vm x not found', details } } };
    const snapshots = { 'DELETE /v1/snapshots/mine': refusedSnapshot };
    expect((await fuse(args('snapshot delete mine --yes'), snapshots)).stderr).toMatch(
      /^not found: snapshot mine not found\nhint: .*fuse snapshot list --name/,
    );
    expect((await fuse(args('env get x'), { 'GET /v1/environments/x': gone })).stderr).toBe(
      `not found: vm x not found\nhint: it failed at ${AT}: host lost\n`,
    );
  });

  it('is told the tenant: by the flag, else the variable, else the context', async () => {
    await fuse(connect('--token', 't', '--tenant', 'of-context'), { ...version, ...hosts }, {});
    const tenantOf = async (line: string, env: Record<string, string> = {}) => {
      server.heard.length = 0;
      await fuse(args(line), { 'GET /v1/usage': { body: usage } }, env);
      return server.heard[0]?.headers['fuse-tenant'];
    };
    expect(await tenantOf('usage')).toBe('of-context');
    expect(await tenantOf('usage', { FUSE_TENANT: 'of-variable' })).toBe('of-variable');
    expect(await tenantOf('usage --tenant of-flag', { FUSE_TENANT: 'of-variable' })).toBe('of-flag');
    expect(await tenantOf('usage', { FUSE_URL: server.url })).toBeUndefined();
  });

  it('has an active host, which lists and the status show alone', async () => {
    await fuse(connect('--token', 't', '--master'), { ...version, ...hosts }, {});
    const unknown = await fuse(['host', 'h9'], {}, {});
    expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringMatching(/^not found: /)]);
    expect(await fuse(['host', 'h1'], hosts, {})).toEqual({
      code: 0,
      stdout: '',
      stderr: 'c: h1 is the active host\n',
    });
    expect((await fuse(['host', '-o', 'json'], {}, {})).stdout).toBe(
      '{\n  "context": "c",\n  "active_host": "h1"\n}\n',
    );
    const [context] = JSON.parse((await fuse(args('context list -o json'), {}, {})).stdout);
    expect(context).toEqual({ name: 'c', base_url: server.url, master: true, active_host: 'h1', current: true });

    const body = { environments: [environment] };
    const onHost = await fuse(['env', 'list'], { [environmentQuery('?host_id=h1')]: { body } }, {});
    expect([onHost.code, onHost.stderr]).toEqual([0, 'only on h1, the active host (--all: on every host)\n']);
    expect((await fuse(args('env list --all'), { [environmentQuery('')]: { body } }, {})).stderr).toBe('');
    const other = await fuse(args('env list --host-id h2'), { [environmentQuery('?host_id=h2')]: { body } }, {});
    expect([other.code, other.stderr]).toEqual([0, '']);
    expect((await fuse(args('hosts metrics'), hosts, {})).stdout).toMatch(/^h1 \(active\)/);

    const there = {
      ...version,
      'GET /v1/hosts?limit=200': { body: { hosts: [host], next_cursor: 'n' } },
      'GET /v1/images': { status: 403, body: { error: { code: 'unauthorized', message: 'no' } } },
    };
    const endpoints = [{ url: 'h:1', port: 80 }];
    const running = { body: { environments: [{ ...environment, endpoints }] } };
    const status = await fuse(
      args('status -o json'),
      { ...there, [environmentQuery('?host_id=h1&limit=200')]: running },
      {},
    );
    expect(JSON.parse(status.stdout)).toEqual({
      context: 'c',
      base_url: server.url,
      master: true,
      active_host: 'h1',
      version: '1',
      host_count: 1,
      host_count_complete: false,
      environments_by_state: { running: 1 },
      environment_scope: 'active_host',
      running_endpoints: [{ vm_id: 'fuse-a', url: 'h:1', port: 80 }],
    });
    const all = await fuse(args('status --all'), { ...there, [environmentQuery('?limit=200')]: running }, {});
    expect(all.stdout).toMatch(/^active host +h1\nhosts +1 or more\nenvironments +1 running\nendpoints +h:1\n$/m);

    expect((await fuse(args('host --none'), {}, {})).stderr).toBe('c: no active host\n');
    expect(await readFile(join(home, 'fuse', 'config.yaml'), 'utf8')).not.toContain('active_host');
    const nowhere = await fuse(['host', 'h1'], hosts);
    expect([nowhere.code, nowhere.stderr]).toEqual([1, expect.stringMatching(/^FUSE_URL is not a context/)]);
  });
});

describe('what an environment is made of', () => {
  const created = { 'POST /v1/environments': { status: 201, body: { ...environment, labels: { a: 'b' } } } };

  it('is sent under the names of the API', async () => {
    await writeFile(join(home, 'manifest.json'), '{"version":"1"}\n');
    const said = await fuse(
      [
        ...args(
          'env create --task-id a --gpus 1 --gpu-kind a100 --gpu-profile 1g.10gb --region eu --arch arm64 --host h1',
        ),
        ...args(
          '--label disk=ssd --tag a=b --max-runtime 1h --queue-timeout 90 --gateway-url http://g --gateway-token t',
        ),
        ...['--secret', 'A=1=2', '--secret', 'B', '--manifest', `@${join(home, 'manifest.json')}`],
      ],
      created,
      { FUSE_URL: server.url, B: 'from here' },
    );
    expect([said.code, said.stderr]).toEqual([0, '']);
    expect(said.stdout).toMatch(/^tags +a=b$/m);
    expect(server.heard[0]?.body).toEqual({
      task_id: 'a',
      spec: {
        gpus: 1,
        gpu_kind: 'a100',
        gpu_profile: '1g.10gb',
        region: 'eu',
        arch: 'arm64',
        host_id: 'h1',
        labels: { disk: 'ssd' },
        max_runtime_seconds: 3600,
      },
      labels: { a: 'b' },
      queue_timeout_seconds: 90,
      gateway_url: 'http://g',
      gateway_token: 't',
      secrets: { A: '1=2', B: 'from here' },
      manifest_inline: Buffer.from('{"version":"1"}').toString('base64'),
    });
  });

  it('may have a manifest that is base64 already', async () => {
    const manifest = Buffer.from('{}').toString('base64');
    await fuse(['env', 'create', '--task-id', 'a', '--manifest', manifest], created);
    expect(server.heard[0]?.body).toMatchObject({ manifest_inline: manifest });
  });
});

describe('help', () => {
  it('is there for every command, with an example', async () => {
    const { stdout } = await fuse(['--help'], {});
    const names = [
      'hosts',
      'host',
      'apikeys',
      'tenants',
      'quotas',
      'usage',
      'audit',
      'events',
      'metrics',
      'computer',
      'desktop',
    ];
    for (const name of [...names, 'quickstart']) expect(stdout).toContain(`  ${name}`);
    for (const name of names) {
      const group = (await fuse([name, '--help'], {})).stdout;
      expect(group, name).toMatch(/Examples?:\n {2}/);
      for (const [, command = ''] of group.matchAll(/^ {2}([a-z-]+)(?:\|\S+)? \[options\]/gm))
        expect((await fuse([name, command, '--help'], {})).stdout, `${name} ${command}`).toMatch(/Examples?:\n {2}/);
    }
  });
});
