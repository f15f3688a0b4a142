export * from './certificates.ts';
export * from './frame-client.ts';
export * from './free-port.ts';
export * from './held-resources.ts';
export * from './kept-process.ts';
export * from './leaks.ts';
export * from './postgres.ts';
export * from './processes.ts';
export * from './raw-http.ts';
export * from './s3-server.ts';
export * from './small-internet/small-internet.ts';
export {
  type NameRecord,
  ports,
  type SeenConnection,
  type SeenQuery,
  world,
  type Zone,
} from './small-internet/world.ts';
export * from './temporary-directory.ts';
export * from './versitygw.ts';
