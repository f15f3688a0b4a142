package health

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	defaultInterval = 10 * time.Second
	defaultTimeout  = 2 * time.Second
	defaultRetries  = 3
	maxSeconds      = 86_400
	maxRetries      = 1000
	maxArguments    = 4096
	maxPathBytes    = 8 << 10
)

// plan is a check with its defaults.
type plan struct {
	url                            string // of an HTTP check
	argv                           []string
	interval, timeout, startPeriod time.Duration
	retries                        int
}

// parse refuses what cannot be checked.
func parse(check protocol.Healthcheck) (plan, error) {
	p := plan{retries: check.Retries, argv: check.Exec}
	if (check.HTTP == nil) == (len(check.Exec) == 0) {
		return p, refuse("http", "exactly one of http and exec")
	}
	if check.Retries < 0 || check.Retries > maxRetries {
		return p, refuse("retries", "0 to "+strconv.Itoa(maxRetries))
	}
	if p.retries == 0 {
		p.retries = defaultRetries
	}
	for _, each := range []struct {
		field   string
		seconds int64
		usual   time.Duration
		into    *time.Duration
	}{
		{"interval_seconds", check.IntervalSeconds, defaultInterval, &p.interval},
		{"timeout_seconds", check.TimeoutSeconds, defaultTimeout, &p.timeout},
		{"start_period_seconds", check.StartPeriodSeconds, 0, &p.startPeriod},
	} {
		if each.seconds < 0 || each.seconds > maxSeconds {
			return p, refuse(each.field, "0 to "+strconv.Itoa(maxSeconds))
		}
		*each.into = time.Duration(each.seconds) * time.Second
		if each.seconds == 0 {
			*each.into = each.usual
		}
	}
	if check.HTTP != nil {
		var err error
		p.url, err = address(*check.HTTP)
		return p, err
	}
	return p, checkArguments(check.Exec)
}

func address(check protocol.HealthcheckHTTP) (string, error) {
	if check.Port < 1 || check.Port > 65_535 {
		return "", refuse("http.port", "1 to 65535")
	}
	path := check.Path
	if path == "" {
		path = "/"
	}
	host := "127.0.0.1:" + strconv.Itoa(check.Port)
	parsed, err := url.Parse("http://" + host + path)
	if err != nil || !strings.HasPrefix(path, "/") || len(path) > maxPathBytes || parsed.Host != host || parsed.User != nil {
		return "", refuse("http.path", "an absolute path of a URL")
	}
	return parsed.String(), nil
}

func checkArguments(argv []string) error {
	if argv[0] == "" || len(argv) > maxArguments {
		return refuse("exec", "a program and its arguments")
	}
	for _, arg := range argv {
		if strings.ContainsRune(arg, 0) {
			return refuse("exec", "arguments without NUL")
		}
	}
	return nil
}

func refuse(field, wanted string) error {
	return fault.New(fault.InvalidArgument, "the healthcheck needs %s", wanted).With("field", field)
}
