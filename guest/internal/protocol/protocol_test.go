package protocol

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"fuse/guest/internal/golden"
)

func TestEveryGoldenBodyKeepsItsFields(t *testing.T) {
	types := map[string]any{
		"GuestHealth": Health{}, "GuestIdentity": Identity{}, "GuestIdentityConfirmed": IdentityConfirmed{}, "ExecSpec": ExecSpec{},
		"GuestExecExit": ExecExit{}, "GuestExecStatus": ExecStatus{}, "GuestFileWritten": FileWritten{}, "GuestGlobRequest": GlobRequest{},
		"GuestGlobResult": GlobResult{}, "GuestErrorBody": ErrorBody{}, "ExecStdin": ExecStdin{}, "TerminalSize": TerminalSize{},
		"GuestSignal": Signal{}, "ListProcesses": ProcessList{}, "Healthcheck": Healthcheck{}, "GuestHealthcheck": HealthcheckState{},
	}
	var bodies map[string][]json.RawMessage
	golden.Read(t, "bodies.json", &bodies)
	if len(bodies) != len(types) {
		t.Errorf("%d kinds of bodies for %d types", len(bodies), len(types))
	}
	for name, each := range bodies {
		for _, text := range each {
			body := reflect.New(reflect.TypeOf(types[name]))
			strict := json.NewDecoder(bytes.NewReader(text))
			strict.DisallowUnknownFields()
			if err := strict.Decode(body.Interface()); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			again, err := json.Marshal(body.Interface())
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if json.Unmarshal(text, &want) != nil || json.Unmarshal(again, &got) != nil || !reflect.DeepEqual(want, got) {
				t.Errorf("%s: %s became %s", name, text, again)
			}
		}
	}
}

func TestBothSidesHaveTheSameConstants(t *testing.T) {
	var want struct {
		PortName        string  `json:"port_name"`
		VsockPort       uint32  `json:"vsock_port"`
		Greeting        string  `json:"greeting"`
		Protocol        int     `json:"protocol"`
		ExecWindowBytes int     `json:"exec_window_bytes"`
		Hooks           string  `json:"restored_hooks_directory"`
		GenerationFile  string  `json:"generation_file"`
		UsualNetwork    Network `json:"usual_network"`
	}
	golden.Read(t, "constants.json", &want)
	if want.PortName != PortName || want.VsockPort != VsockPort || want.Greeting != Greeting || want.Protocol != Version || want.ExecWindowBytes != ExecWindowBytes ||
		want.Hooks != RestoredHooksDirectory || want.GenerationFile != GenerationFile || want.UsualNetwork != UsualNetwork {
		t.Errorf("%+v", want)
	}
}
