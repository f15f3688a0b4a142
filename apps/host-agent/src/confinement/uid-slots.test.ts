import { type TemporaryDirectory, temporaryDirectory } from '@fuse/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { UidSlots } from './uid-slots.ts';

let directory: TemporaryDirectory;
beforeEach(async () => {
  directory = await temporaryDirectory();
});
afterEach(() => directory[Symbol.asyncDispose]());

const open = (bootId = 'boot') => new UidSlots({ directory: directory.path, base: 1_000, bootId });

it('gives nobody the user that another one of the machine has', () => {
  const [one, other] = [open(), open()];
  const uids = Array.from({ length: 1_000 }, (_, number) => [one.take(`/a/${number}`), other.take(`/b/${number}`)]);
  expect(new Set(uids.flat()).size).toBe(2_000);
  for (const uid of uids.flat()) expect(uid).toBeGreaterThanOrEqual(1_000);
});

it('knows whose each is, across a restart', () => {
  const uid = open().take('/vms/one/machine 1');
  expect(open().isOf(uid, '/vms/one/machine 1')).toBe(true);
  expect(open('next boot').taken()).toMatchObject([{ uid, owner: '/vms/one/machine 1', bootId: 'boot' }]);
});

it('frees what is its own alone', () => {
  const slots = open();
  const uid = slots.take('/vms/one');
  slots.free(uid, '/vms/other');
  expect(slots.isOf(uid, '/vms/one')).toBe(true);
  slots.free(uid, '/vms/one');
  slots.free(uid, '/vms/one');
  expect(slots.taken()).toEqual([]);
});

it('says so when all are taken', () => {
  const slots = open();
  for (let number = 0; number < 4_096; number++) slots.take('/vms/one');
  expect(() => slots.take('/vms/one')).toThrow('all 4096 users');
});
