import { describe, expect, it } from 'vitest';
import { contentDisposition } from './content-disposition.ts';

describe('content disposition', () => {
  it.each([
    ['report.json', `attachment; filename="report.json"; filename*=UTF-8''report.json`],
    ['a b.txt', `attachment; filename="a b.txt"; filename*=UTF-8''a%20b.txt`],
    ['naïve ☃.txt', `attachment; filename="na_ve _.txt"; filename*=UTF-8''na%C3%AFve%20%E2%98%83.txt`],
    ['a"b%c.txt', `attachment; filename="a_b_c.txt"; filename*=UTF-8''a%22b%25c.txt`],
    ["it's (1)*.txt", `attachment; filename="it's (1)*.txt"; filename*=UTF-8''it%27s%20%281%29%2A.txt`],
    ['../etc\\passwd', `attachment; filename=".._etc_passwd"; filename*=UTF-8''.._etc_passwd`],
    ['x\r\nset-cookie: a=b', `attachment; filename="x__set-cookie: a=b"; filename*=UTF-8''x__set-cookie%3A%20a%3Db`],
    ['half \ud800.txt', `attachment; filename="half _.txt"; filename*=UTF-8''half%20%EF%BF%BD.txt`],
  ])('names %j safely', (name, header) => {
    expect(contentDisposition(name)).toBe(header);
  });
});
