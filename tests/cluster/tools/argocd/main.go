// Command argocd is the two programs of Argo CD that compare and synchronise: no web server, no command line.
//
// ARGOCD_BINARY_NAME says which one, as in the original.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	repository "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/argoproj/argo-cd/v3/util/log"
)

func main() {
	klog.SetLogger(log.NewLogrusLogger(log.NewWithCurrentConfig()))
	roles := map[string]func() *cobra.Command{
		"argocd-application-controller": controller.NewCommand,
		"argocd-repo-server":            repository.NewCommand,
	}
	name := os.Getenv("ARGOCD_BINARY_NAME")
	role, known := roles[name]
	if !known {
		os.Stderr.WriteString("ARGOCD_BINARY_NAME: no role " + name + "\n")
		os.Exit(2)
	}
	if role().Execute() != nil {
		os.Exit(1)
	}
}
