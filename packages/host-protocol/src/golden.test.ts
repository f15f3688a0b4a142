/** The vectors in golden/ hold this side of the guest protocol and the Go side (guest/internal/) to the same bytes. */
import { readFileSync } from 'node:fs';
import {
  ExecStdin,
  encodeFrame,
  FrameError,
  FrameParser,
  Healthcheck,
  ListProcesses,
  TerminalSize,
} from '@fuse/contract';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { USUAL_NETWORK } from './gateway.ts';
import {
  EXEC_WINDOW_BYTES,
  ExecSpec,
  GENERATION_FILE,
  GUEST_GREETING,
  GUEST_PORT_NAME,
  GUEST_PROTOCOL,
  GUEST_VSOCK_PORT,
  GuestErrorBody,
  GuestExecExit,
  GuestExecStatus,
  GuestFileWritten,
  GuestGlobRequest,
  GuestGlobResult,
  GuestHealth,
  GuestHealthcheck,
  GuestIdentity,
  GuestIdentityConfirmed,
  GuestSignal,
  RESTORED_HOOKS_DIRECTORY,
} from './guest.ts';

const Vector = z.object({ name: z.string(), type: z.number(), payload_hex: z.string(), frame_hex: z.string() });
const Broken = z.array(z.object({ name: z.string(), hex: z.string() }));
const frames = z
  .object({
    frames: z.array(Vector),
    reserved_bytes_are_ignored: Vector.omit({ name: true }),
    refused: Broken,
    cut: Broken,
  })
  .parse(read('frames.json'));

function read(name: string): unknown {
  return JSON.parse(readFileSync(new URL(`../golden/${name}`, import.meta.url), 'utf8'));
}

const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'));
const hex = (data: Uint8Array) => Buffer.from(data).toString('hex');

describe('golden frames', () => {
  it.each(frames.frames)('encodes and parses $name', ({ type, payload_hex, frame_hex }) => {
    expect(hex(encodeFrame(type, bytes(payload_hex)))).toBe(frame_hex);
    const parsed = [...new FrameParser().push(bytes(frame_hex))];
    expect(parsed.map((frame) => [frame.type, hex(frame.payload)])).toEqual([[type, payload_hex]]);
  });

  it('parses all of them in a row, cut after every byte', () => {
    const parser = new FrameParser();
    const stream = bytes(frames.frames.map((vector) => vector.frame_hex).join(''));
    const parsed = [...stream].flatMap((byte) => [...parser.push(Uint8Array.of(byte))]);
    expect(parsed.map((frame) => hex(frame.payload))).toEqual(frames.frames.map((vector) => vector.payload_hex));
    expect(parser.pendingBytes).toBe(0);
  });

  it('ignores reserved bytes', () => {
    const { frame_hex, type, payload_hex } = frames.reserved_bytes_are_ignored;
    const [frame] = [...new FrameParser().push(bytes(frame_hex))];
    expect([frame?.type, hex(frame?.payload ?? new Uint8Array())]).toEqual([type, payload_hex]);
  });

  it.each(frames.refused)('refuses a $name', (vector) => {
    expect(() => [...new FrameParser().push(bytes(vector.hex))]).toThrow(FrameError);
  });

  it.each(frames.cut)('sees that a stream is cut $name', (vector) => {
    const parser = new FrameParser();
    expect([...parser.push(bytes(vector.hex))]).toEqual([]);
    expect(parser.pendingBytes).toBeGreaterThan(0);
  });
});

describe('golden bodies', () => {
  const schemas = {
    GuestHealth,
    GuestIdentity,
    GuestIdentityConfirmed,
    ExecSpec,
    GuestExecExit,
    GuestExecStatus,
    ExecStdin,
    TerminalSize,
    GuestSignal,
    ListProcesses,
    Healthcheck,
    GuestHealthcheck,
    GuestFileWritten,
    GuestGlobRequest,
    GuestGlobResult,
    GuestErrorBody,
  };
  const bodies = z.record(z.string(), z.array(z.unknown())).parse(read('bodies.json'));

  it('have a schema each', () => {
    expect(Object.keys(bodies).sort()).toEqual(Object.keys(schemas).sort());
  });

  it.each(Object.entries(schemas))('%s keeps every field', (name, schema) => {
    for (const body of bodies[name] ?? []) expect(schema.parse(body)).toEqual(body);
  });

  it('agree on the constants', () => {
    expect(read('constants.json')).toEqual({
      port_name: GUEST_PORT_NAME,
      vsock_port: GUEST_VSOCK_PORT,
      greeting: GUEST_GREETING,
      protocol: GUEST_PROTOCOL,
      exec_window_bytes: EXEC_WINDOW_BYTES,
      restored_hooks_directory: RESTORED_HOOKS_DIRECTORY,
      generation_file: GENERATION_FILE,
      usual_network: USUAL_NETWORK,
    });
  });
});
