/** Who may open /dev/kvm, and what networks of VMs are made with. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Check, type Finding, ok, warn } from '../finding.ts';
import { programOutput } from '../program-output.ts';

export const kvmPermissionsCheck: Check = {
  name: '/dev/kvm',
  run: async ({ root }) => judgeKvmPermissions(await modeOf(join(root, 'dev/kvm'))),
};

export const networkToolsCheck: Check = {
  name: 'network tools',
  run: async ({ root, signal }) =>
    judgeNetworkTools({
      nft: await firstOutput(['/usr/sbin/nft', '/sbin/nft', 'nft'], '--version', signal),
      ip: await firstOutput(['/usr/sbin/ip', '/sbin/ip', 'ip'], '-V', signal),
      tun: (await modeOf(join(root, 'dev/net/tun'))) !== undefined,
    }),
};

export function judgeKvmPermissions(mode: number | undefined): Finding {
  if (mode === undefined) return ok('not there');
  const bits = (mode & 0o777).toString(8);
  if ((mode & 0o006) === 0) return ok(`mode ${bits}`);
  return warn(
    `mode ${bits}: every user of this host can make VMs`,
    'chmod 660 /dev/kvm, and a udev rule that keeps it so',
  );
}

export function judgeNetworkTools(found: { nft: string | undefined; ip: string | undefined; tun: boolean }): Finding {
  const packages = [...(found.nft === undefined ? ['nftables'] : []), ...(found.ip === undefined ? ['iproute2'] : [])];
  const missing = [...packages, ...(found.tun ? [] : ['/dev/net/tun'])];
  if (missing.length === 0) return ok(`${/v[\d.]+/.exec(found.nft ?? '')?.[0] ?? 'nftables'}, iproute2, /dev/net/tun`);
  const fixes = [
    ...(packages.length === 0 ? [] : [`apt-get install --no-install-recommends ${packages.join(' ')}`]),
    ...(found.tun ? [] : ['modprobe tun']),
  ];
  return warn(`missing: ${missing.join(', ')}; VMs can have no network card`, fixes.join('; '));
}

async function modeOf(path: string): Promise<number | undefined> {
  return stat(path).then(
    ({ mode }) => mode,
    () => undefined,
  );
}

async function firstOutput(
  programs: readonly string[],
  option: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (const program of programs) {
    const output = await programOutput([program, option], signal);
    if (output !== undefined) return output;
  }
  return undefined;
}
