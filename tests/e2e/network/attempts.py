"""
What a guest may try. `python3 attempts.py FILE`: FILE is a JSON list of {name, code, alone}; each code is a call of a function below. One JSON line for each attempt says what
came of it: `reached: ...` when something came back, `refused: ...` when the guest was told no, `silence` when nothing came in time.
"""
import concurrent.futures, errno, json, os, socket, ssl, struct, sys, time

PATIENCE_S = 10
WAIT_FOR_FRAMES_S = 0.3
RESOLVER = '192.0.0.1'
GATEWAY_MAC = bytes.fromhex('02fc00000001')
EVERYBODY = b'\xff' * 6


def connect(host, port):
    return socket.create_connection((host, port), timeout=PATIENCE_S)


def received(connection):
    data = connection.recv(65536)
    return f'reached: {data[:60]!r}' if data else 'refused: closed'


def tcp(host, port, say=b''):
    with connect(host, port) as connection:
        if say:
            connection.sendall(say)
        return received(connection)


def ask(host, path='/', *headers):
    return '\r\n'.join([f'GET {path} HTTP/1.1', *([] if host is None else [f'Host: {host}']), *headers, '', '']).encode()


def answers(connection):
    """All bytes until the other side is silent for a moment, or ends."""
    data = b''
    while True:
        try:
            more = connection.recv(65536)
        except socket.timeout:
            return data
        except ConnectionResetError:
            if data:
                return data
            raise
        if not more:
            return data
        data += more
        connection.settimeout(1)


def http(host, path='/', to=None, port=80, raw=None):
    """`to`: connected to instead of the host. `raw`: sent instead of a request."""
    with connect(to or host, port) as connection:
        connection.sendall(ask(host, path) if raw is None else raw)
        data = answers(connection)
        return f'reached: {data[:40]!r}' if data else 'refused: closed'


def http_then(first, second, to, port=80):
    """Says what came of the second request on one connection."""
    with connect(to, port) as connection:
        connection.sendall(first)
        if not answers(connection).startswith(b'HTTP/1.1 200'):
            return 'broken: the first request was not served'
        connection.settimeout(PATIENCE_S)
        connection.sendall(second)
        data = answers(connection)
        return f'reached: {data[:40]!r}' if data else 'refused: closed'


def redirected(name, to):
    """Goes where a server sends it."""
    import urllib.parse, urllib.request
    with urllib.request.urlopen(f'http://{name}/to/{urllib.parse.quote(to, safe="")}', timeout=PATIENCE_S) as answer:
        return f'reached: {answer.read(60)!r}'


def context(verify):
    made = ssl.create_default_context(cafile='/tmp/ca.pem')
    if not verify:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def tls(to, name, port=443, path='/', host=None, verify=True):
    """`name`: the one given in the handshake; None: none is given."""
    with connect(to, port) as raw:
        with context(verify and name is not None).wrap_socket(raw, server_hostname=name) as connection:
            connection.sendall(ask(host or name or to, path))
            return received(connection)


def hello(name):
    bio = ssl.MemoryBIO()
    try:
        context(False).wrap_bio(ssl.MemoryBIO(), bio, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return bio.read()


def message(record):
    return record[5:]


def records(handshake, size=16384):
    cut = [handshake[i:i + size] for i in range(0, len(handshake), size)]
    return b''.join(b'\x16\x03\x01' + struct.pack('>H', len(each)) + each for each in cut)


def dribble(to, port, data):
    """One byte a segment."""
    with connect(to, port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            connection.send(data[i:i + 1])
        return received(connection)


def late(to, port, first, rest):
    with connect(to, port) as connection:
        connection.sendall(first)
        time.sleep(1)
        connection.sendall(rest)
        return received(connection)


def query(name, kind=1):
    labels = b''.join(bytes([len(each)]) + each for each in (part.encode('latin-1') for part in name.rstrip('.').split('.') if part))
    return struct.pack('>6H', 0x4242, 0x0100, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>2H', kind, 1)


def dns(name, kind=1, server=RESOLVER, over='udp', port=53):
    """A, NS, NULL, TXT, AAAA, AXFR, ANY: 1, 2, 10, 16, 28, 252, 255."""
    sent = query(name, kind)
    if over == 'tcp':
        with connect(server, port) as connection:
            connection.sendall(struct.pack('>H', len(sent)) + sent)
            reply = connection.recv(4096)[2:]
            if not reply:
                return 'refused: closed'
    else:
        reply = datagram(server, port, sent)
    code, answers = reply[3] & 15, struct.unpack('>H', reply[6:8])[0]
    if code == 0 and answers:
        return f'reached: {socket.inet_ntoa(reply[-4:]) if kind == 1 else answers}'
    return f'refused: {"NXDOMAIN" if code == 3 else f"code {code}, no answer"}'


def datagram(host, port, data=b'x'):
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.settimeout(PATIENCE_S)
        sender.connect((host, port))
        sender.send(data)
        return sender.recv(4096)


def udp(host, port, data=b'x'):
    return f'reached: {datagram(host, port, data)[:40]!r}'


def scan_udp(host, ports):
    for port in ports:
        try:
            return f'reached: port {port} {datagram(host, port)!r}'
        except ConnectionRefusedError:
            pass
    return f'refused: each of {len(ports)} ports'


def raw(protocol, host, data=b'\xff' * 16):
    """Where the kernel knows no better it takes a protocol to have a checksum over everything, and tells nobody about a packet of which that is wrong."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as sender:
        sender.settimeout(PATIENCE_S)
        sender.connect((host, 0))
        sender.send(data)
        return f'reached: {sender.recv(4096)[:40]!r}'


def icmp(host, kind, rest=bytes(16)):
    """Until it is connected, a socket hears what other attempts are answered: that tells nothing about this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as sender:
        sender.settimeout(PATIENCE_S)
        sender.connect((host, 0))
        sender.send(bytes([kind, 0]) + struct.pack('>H', checksum(bytes([kind, 0, 0, 0]) + rest)) + rest)
        while True:
            answer = sender.recv(4096)
            said = answer[(answer[0] & 15) * 4:]
            about_others = said[0] in (3, 5, 11, 12) and (said[17] != 1 or said[24:28] != socket.inet_aton(host))
            if not about_others:
                return f'reached: {answer[:40]!r}'


def ping(host):
    return icmp(host, 8, bytes(4))


def ping6(host):
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58) as sender:
        sender.settimeout(PATIENCE_S)
        sender.sendto(bytes([128, 0, 0, 0, 0, 0, 0, 0]), (host, 0, 0, 0))
        return f'reached: {sender.recv(4096)[:40]!r}'


def own():
    """Hardware and IPv4 address of the card."""
    return bytes.fromhex(open('/sys/class/net/eth0/address').read().strip().replace(':', '')), '192.0.0.2'


def checksum(data):
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack(f'>{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def packet(to, protocol, payload, source='192.0.0.2', options=b'', fragment=0):
    words = 5 + len(options) // 4
    def header(check):
        return struct.pack('>BBHHHBBH4s4s', 0x40 | words, 0, words * 4 + len(payload), 7, fragment, 64, protocol, check,
                           socket.inet_aton(source), socket.inet_aton(to)) + options
    return header(checksum(header(0))) + payload


def pseudo(to, protocol, payload, source):
    return socket.inet_aton(source) + socket.inet_aton(to) + struct.pack('>BBH', 0, protocol, len(payload)) + payload


def syn(to, port=80, source='192.0.0.2', **more):
    def segment(check):
        return struct.pack('>HHIIBBHHH', 4242, port, 1, 0, 0x50, 2, 8192, check, 0)
    return packet(to, 6, segment(checksum(pseudo(to, 6, segment(0), source))), source, **more)


def datagram_packet(to, port=53, source='192.0.0.2', data=None, sport=4243, **more):
    data = query('one.shop.org') if data is None else data
    return packet(to, 17, struct.pack('>HHHH', sport, port, 8 + len(data), 0) + data, source, **more)


def packet6(to, protocol, payload, source='fe80::5'):
    a, b = (socket.inet_pton(socket.AF_INET6, each) for each in (source, to))
    if protocol == 58:
        payload = payload[:2] + struct.pack('>H', checksum(a + b + struct.pack('>II', len(payload), 58) + payload)) + payload[4:]
    return struct.pack('>IHBB', 6 << 28, len(payload), protocol, 255) + a + b + payload


def arp(about, operation=1, source='192.0.0.2', mac=None):
    mac = mac or own()[0]
    return struct.pack('>HHBBH', 1, 0x0800, 6, 4, operation) + mac + socket.inet_aton(source) + b'\0' * 6 + socket.inet_aton(about)


def frame(payload, kind=0x0800, to=GATEWAY_MAC, source=None, tag=b''):
    """What comes back, if anything. Refusals are errors of ICMP and resets."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as card:
        card.bind(('eth0', 0))
        card.settimeout(0)
        try:
            while True:
                card.recv(4096)
        except BlockingIOError:
            pass
        card.send(to + (source or own()[0]) + tag + struct.pack('>H', kind) + payload)
        end = time.monotonic() + WAIT_FOR_FRAMES_S
        while (left := end - time.monotonic()) > 0:
            card.settimeout(left)
            try:
                data, address = card.recvfrom(4096)
            except (socket.timeout, BlockingIOError):
                break
            if address[2] == socket.PACKET_OUTGOING:
                continue
            inner = data[14:]
            if data[12:14] == b'\x08\x00' and (inner[9] == 1 and inner[20] == 3 or inner[9] == 6 and inner[33] & 4):
                return 'refused: told by a packet'
            return f'reached: {data[12:60].hex()}'
        return 'silence'


def cards():
    found = sorted(os.listdir('/sys/class/net'))
    return 'refused: only lo' if found == ['lo'] else f'reached: {found}'


def any_card():
    """Writes frames to whatever is no loopback."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as card:
        card.bind(('eth0', 0))
        return 'reached: a card'


def impatient(code):
    """For what waits for an answer that nobody gives. Not at the same time as others."""
    global PATIENCE_S
    patience, PATIENCE_S = PATIENCE_S, 1
    try:
        return attempt(code)
    finally:
        PATIENCE_S = patience


def with_route(code):
    """With everything routed into the loopback."""
    os.system('ip route add default dev lo 2>/dev/null')
    try:
        return impatient(code)
    finally:
        os.system('ip route delete default dev lo')


def with_ipv6(code):
    """With an IPv6 address, a router and its hardware address, which nobody gave."""
    switch = '/proc/sys/net/ipv6/conf/eth0/disable_ipv6'
    open(switch, 'w').write('0')
    os.system('ip -6 address add 2001:db8::5/64 dev eth0 nodad; ip -6 neighbour replace 2001:db8::1 lladdr 02:fc:00:00:00:01 dev eth0; ip -6 route replace default via 2001:db8::1 dev eth0')
    try:
        return impatient(code)
    finally:
        open(switch, 'w').write('1')


def with_address(address, code):
    os.system(f'ip address add {address}/29 dev eth0')
    try:
        return impatient(code)
    finally:
        os.system(f'ip address delete {address}/29 dev eth0')


def bound_to(source, host, port):
    with socket.socket() as connection:
        connection.settimeout(PATIENCE_S)
        connection.bind((source, 0))
        connection.connect((host, port))
        return received(connection)


def vsock(cid, port):
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect((cid, port))
        return 'reached: a host service'


def first(*codes):
    """Of several spellings the first that reaches anything."""
    said = 'refused: nothing was tried'
    for code in codes:
        said = attempt(code)
        if not said.startswith('refused'):
            return f'{said} ({code})'
    return said if len(codes) == 1 else f'{said}, in each of {len(codes)} ways'


def attempt(code):
    try:
        return eval(code)
    except ssl.SSLCertVerificationError as error:
        return f'reached: another certificate ({error.verify_message})'
    except socket.timeout:
        return 'silence'
    except socket.gaierror as error:
        return f'refused: {error.strerror}'
    except ssl.SSLError as error:
        return f'refused: {error.reason or "ended in the handshake"}'
    except UnicodeError as error:
        return f'refused: no name ({error})'
    except OSError as error:
        reason = error.reason if hasattr(error, 'reason') else error
        return f'refused: {errno.errorcode.get(getattr(reason, "errno", None), str(reason))}'


def tell(each):
    began = time.monotonic()
    outcome = attempt(each['code'])
    print(json.dumps({'name': each['name'], 'outcome': outcome, 'ms': round((time.monotonic() - began) * 1000)}), flush=True)


if __name__ == '__main__':
    batch = json.load(open(sys.argv[1]))
    with concurrent.futures.ThreadPoolExecutor(8) as together:
        list(together.map(tell, [each for each in batch if not each.get('alone')]))
    for each in batch:
        if each.get('alone'):
            tell(each)
