/** What a QEMU in its jail makes of a device of the host: there is none here, so its node is one that nothing is behind. */
import { mkdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createLogger } from '@fuse/runtime';
import { temporaryDirectory } from '@fuse/testing';
import { afterAll, expect, it } from 'vitest';
import { Confinement } from '../../confinement/confinement.ts';
import { limitsOf } from '../../confinement/limits.ts';
import { Gpus } from '../../gpus/gpus.ts';
import { TestSysfs } from '../../gpus/test-sysfs.ts';
import { endSpawner, startChild } from '../children.ts';
import { FIRMWARE_PATH, QEMU_PROGRAM, RUN_DIRECTORY } from './command-line.ts';
import { passedDeviceArguments, showDevices } from './passed-devices.ts';
import { jailed, prepareQemuRoot, qemuJail } from './qemu-jail.ts';

/** What every user may lock. */
const LITTLE_BYTES = 1_048_576;
const log = createLogger({ name: 'test', level: 'silent' });

afterAll(endSpawner);

it('it finds the group of each device, of PCI or mediated, and opens its node, which no other user may', async () => {
  await using temporary = await temporaryDirectory();
  const uuid = 'c0ffee00-1111-2222-3333-444455556666';
  const sysfs = new TestSysfs(temporary.path);
  await sysfs.addPci({ address: '0000:65:00.0', driver: 'vfio-pci', group: '12' });
  await sysfs.addMediated({ uuid, type: 'NVIDIA A100-1-5C', group: '13' });
  await sysfs.addNodes('12', '13');
  const gpus = new Gpus(sysfs.config);
  const [pci] = await gpus.passThrough({ gpus: 1, devices: ['0000:65:00.0'] });
  const [instance] = await gpus.passThrough({ gpus: 1, profile: '1g.5gb', devices: [uuid] });
  if (pci === undefined || instance === undefined) throw new Error('passed through without a device');

  const directory = join(temporary.path, 'machine');
  await mkdir(join(directory, RUN_DIRECTORY), { recursive: true, mode: 0o711 });
  const file = join(directory, 'file');
  await writeFile(file, '');
  const root = await prepareQemuRoot(temporary.path, 'tcg');
  const confinement = await Confinement.open({ mode: 'required', uidBase: 872_000 }, log);
  const limits = limitsOf({ cpus: 1, memoryMiB: 64 }, { accelerator: 'tcg', largestFileBytes: LITTLE_BYTES });
  const cell = confinement?.take(directory, limits);
  if (cell === undefined) throw new Error('not confined');
  try {
    const devices = await showDevices(directory, [pci, instance]);
    cell.own(devices.nodes);
    for (const node of devices.nodes) expect(await stat(node)).toMatchObject({ uid: cell.uid, mode: 0o020_600 });
    const files = {
      directory,
      imagePath: file,
      writableDiskPath: file,
      memoryPath: file,
      sharedMemory: false,
      devices,
    };
    const jail = qemuJail(root, cell, { ...limits, memoryBytes: LITTLE_BYTES }, files);
    expect(jail.limits.lockedBytes).toBe(LITTLE_BYTES);
    for (const [device, group] of [
      [pci, 12],
      [instance, 13],
    ] as const) {
      const machine = [
        '-nodefaults',
        '-display',
        'none',
        '-machine',
        'q35,accel=tcg',
        '-m',
        '64M',
        '-bios',
        FIRMWARE_PATH,
      ];
      const child = await startChild({
        program: QEMU_PROGRAM,
        args: [...machine, ...passedDeviceArguments([device])],
        cwd: jailed.directory,
        env: {},
        session: false,
        stdio: ['ignore', 'pipe', 'pipe'],
        jail,
      });
      const { code, stderr } = await child.ended;
      expect(code).toBe(1);
      expect(stderr).toContain(`vfio ${device.name}: `);
      expect(stderr).toMatch(new RegExp(`group ${group}.*: Inappropriate ioctl for device`));
    }
  } finally {
    await cell.end();
  }
}, 60_000);
