// Command verdicts says how the ecosystem's own code judges objects: kstatus, and Flux by health check expressions.
//
// Its argument is a file with the key healthCheckExprs of a Flux Kustomization; standard input is a JSON list of
// objects. It prints a JSON list of {"kstatus": ..., "flux": ...}, one per object, in their order.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	fluxstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

type verdict struct {
	Kstatus string `json:"kstatus"`
	Flux    string `json:"flux"`
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	must(err)
	var checks struct {
		HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
	}
	must(yaml.UnmarshalStrict(text, &checks))
	evaluators := map[string]*cel.StatusEvaluator{}
	for _, check := range checks.HealthCheckExprs {
		evaluators[check.APIVersion+" "+check.Kind], err = cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		must(err)
	}
	var raw []json.RawMessage
	must(json.NewDecoder(os.Stdin).Decode(&raw))
	verdicts := []verdict{}
	for _, each := range raw {
		// This way of reading keeps whole numbers whole, as a client's does; kstatus looks at no others.
		object := &unstructured.Unstructured{}
		must(object.UnmarshalJSON(each))
		computed, err := status.Compute(object)
		must(err)
		said, err := evaluators[object.GetAPIVersion()+" "+object.GetKind()].Evaluate(context.Background(), object)
		if err != nil {
			// As Flux's reader of statuses does, which then looks again.
			said = &fluxstatus.Result{Status: fluxstatus.UnknownStatus}
		}
		verdicts = append(verdicts, verdict{Kstatus: string(computed.Status), Flux: string(said.Status)})
	}
	must(json.NewEncoder(os.Stdout).Encode(verdicts))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
