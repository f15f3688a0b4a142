import { describe, expect, it } from 'vitest';
import {
  bootArguments,
  machineArguments,
  machineFingerprint,
  type QemuMachine,
  restoreArguments,
} from './command-line.ts';

const machine: QemuMachine = {
  accelerator: 'tcg',
  shape: { cpus: 2, memoryMiB: 512 },
  memoryPath: 'memory',
  sharedMemory: false,
  imagePath: '/images/base.erofs',
  writableDiskPath: '/vms/one/writable.img',
  runDirectory: 'run',
};

const valuesOf = (args: string[], option: string) => args.filter((_, index) => args[index - 1] === option);

describe('the command line', () => {
  it('has the same devices for boot and restore, whatever else differs', () => {
    const boot = bootArguments(
      { ...machine, sharedMemory: true, consoleFd: 3 },
      { kernelPath: '/vmlinux', initramfsPath: '/initramfs' },
    );
    const restore = restoreArguments(machine);
    expect(valuesOf(boot, '-device')).toEqual(valuesOf(restore, '-device'));
    expect(valuesOf(boot, '-machine')).toEqual(valuesOf(restore, '-machine'));
    expect(restore).not.toContain('-kernel');
  });

  it('takes a path with commas for a path', () => {
    const args = machineArguments({ ...machine, writableDiskPath: '/a,readonly=on/b' });
    expect(args.join(' ')).toContain('file=/a,,readonly=on/b,format=raw');
  });

  it('denies QEMU to start programs and to gain privileges', () => {
    expect(valuesOf(machineArguments(machine), '-sandbox')).toEqual([
      'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    ]);
  });

  it('gives the image read-only', () => {
    const [image, writable] = valuesOf(machineArguments(machine), '-drive');
    expect(image).toContain('read-only=on');
    expect(writable).not.toContain('read-only');
  });

  it('limits what both disks do together, and changes nothing that the guest sees', () => {
    const limited = machineArguments({ ...machine, diskRate: { bytesPerSecond: 1_000_000, requestsPerSecond: 100 } });
    for (const drive of valuesOf(limited, '-drive'))
      expect(drive).toContain(',throttling.bps-total=1000000,throttling.iops-total=100,throttling.group=disks');
    expect(valuesOf(limited, '-device')).toEqual(valuesOf(machineArguments(machine), '-device'));
  });

  it('puts a network card behind all other devices', () => {
    const network = { tapFd: 4, mac: '02:00:00:00:00:01' };
    const devices = valuesOf(machineArguments({ ...machine, network }), '-device');
    expect(devices.slice(0, -1)).toEqual(valuesOf(machineArguments(machine), '-device'));
    expect(devices.at(-1)).toContain('mac=02:00:00:00:00:01');
  });

  it('has a fingerprint that names no path and differs between accelerators', () => {
    expect(machineFingerprint('tcg')).not.toBe(machineFingerprint('kvm'));
    expect(machineFingerprint('tcg')).not.toContain('/images');
  });
});
