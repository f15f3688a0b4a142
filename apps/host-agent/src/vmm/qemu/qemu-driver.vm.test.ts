import { describeDriver } from '../driver.contract.ts';
import { openQemuDriver } from './qemu-driver.ts';

const built = new URL('../../../dist/vmm/qemu/qemu-driver.js', import.meta.url);

describeDriver('QEMU', {
  open: openQemuDriver,
  openDriverScript: `
    import { openQemuDriver } from ${JSON.stringify(built.href)};
    const log = { info() {} };
    const openDriver = (options) => openQemuDriver({ ...options, log });`,
  identityFile: 'vmm.json',
  reportsHowItEnded: true,
  offKey: 'o',
});
