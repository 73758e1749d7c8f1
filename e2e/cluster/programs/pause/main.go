// Pause holds a pod's namespaces open for its containers and does nothing else.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	// As the first process of a pod it inherits orphans, if the pod shares its process namespace: take note of their end.
	ended := make(chan os.Signal, 16)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		select {
		case <-stop:
			return
		case <-ended:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
