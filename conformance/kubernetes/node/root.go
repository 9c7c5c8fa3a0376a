package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Folders of the machine that a pod sees, read-only in spirit: its user cannot write them.
var shared = []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ssl", "/dev", "/proc", "/sys"}

// inPod is the process of a pod before it becomes the container's: it is in its own namespaces, waits for its network,
// gets a root file system in memory, and runs the command.
func inPod(text string) error {
	var told spec
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return err
	}
	if _, err := io.ReadAll(os.NewFile(3, "told")); err != nil {
		return err
	}
	if !told.Host {
		for _, line := range []string{
			"link set lo up", "link set eth0 up", "addr add " + told.Address + "/16 dev eth0",
			"route add default via " + bridgeAddress,
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		if err := syscall.Sethostname([]byte(told.Hostname)); err != nil {
			return err
		}
		// As containerd and CRI-O do.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := root(&told); err != nil {
		return err
	}
	if err := syscall.Setgroups([]int{told.Group}); err != nil {
		return err
	}
	if err := syscall.Setgid(told.Group); err != nil {
		return err
	}
	if err := syscall.Setuid(told.User); err != nil {
		return err
	}
	return syscall.Exec(told.Command[0], told.Command, told.Env)
}

// root makes the file system of the pod and changes into it.
func root(told *spec) error {
	// What is mounted here stays here.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := syscall.Mount("tmpfs", told.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	bind := func(from, to string, isFolder bool) error {
		target := filepath.Join(told.Root, to)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if isFolder {
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
		} else if err := os.WriteFile(target, nil, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(from, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", from, to, err)
		}
		return nil
	}
	for _, folder := range shared {
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		if err := bind(folder, folder, true); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(told.Root, "tmp"), 0o777); err != nil {
		return err
	}
	for path, program := range told.Programs {
		if err := bind(program, path, false); err != nil {
			return err
		}
	}
	for path, folder := range told.Volumes {
		if err := bind(folder, path, true); err != nil {
			return err
		}
	}
	if err := syscall.Chroot(told.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}
